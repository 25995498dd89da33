"""Progress of a call, at most ten frames a second, and none that anybody would have to wait for."""

from __future__ import annotations

import contextlib
import time
from _thread import allocate_lock

from protocol._errors import LocalProtocolError
from protocol._worker_messages import Progress
from toolworkers._channel import Channel
from toolworkers.runners._failures import printable

INTERVAL_NS = 100_000_000


class ProgressSink:
    """Where `Context.progress` of one call goes. Safe from any thread; after `close` it says nothing more."""

    __slots__ = ("_channel", "_lock", "_next_ns", "_nonce", "_open")

    def __init__(self, channel: Channel, nonce: int) -> None:
        self._channel, self._nonce = channel, nonce
        self._lock = allocate_lock()
        self._next_ns = 0
        self._open = True

    def __call__(self, done: float | None, total: float | None, text: str | None) -> None:
        """Raises TypeError or ValueError to a tool whose numbers are none."""
        now = time.monotonic_ns()
        if now < self._next_ns:
            return
        done, total = (None if number is None else float(number) for number in (done, total))
        said = None if text is None else printable(text)
        with self._lock:
            if self._open and now >= self._next_ns:
                self._next_ns = now + INTERVAL_NS
                with contextlib.suppress(LocalProtocolError):  # a straggler of an earlier call
                    self._channel.send_if_room(Progress(self._nonce, done=done, total=total, text=said))

    def close(self) -> None:
        """The call has ended: a thread that it left behind must not speak into the next one."""
        with self._lock:
            self._open = False
