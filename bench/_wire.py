"""A client with nothing on it: a blocking socket and the codec. What it measures is the far end, and the same client
speaks to the floors. `deadlined.Client` is measured beside it.
"""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Any

from protocol import _client_messages as cm
from protocol._codecs import client_to_daemon
from protocol._framing import FRAME_HARD_LIMIT, FrameBuffer
from protocol._outcomes import CallResult

_READ = 1 << 18
_PATIENCE_S = 60.0


class BareClient:
    """One greeted connection; any number of submits in flight."""

    def __init__(self, path: str) -> None:
        self._codec = client_to_daemon()
        self._frames = FrameBuffer(FRAME_HARD_LIMIT)
        self._last = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_PATIENCE_S)
        try:
            self._socket.connect(path)
            self._socket.sendall(self._codec.pack(cm.Hello(cm.VERSION, "bench")))
            (self._welcome,) = self._hear()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> BareClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For a poll."""
        return self._socket.fileno()

    @property
    def far_pid(self) -> int:
        """The process at the other end."""
        pid: int = self._welcome.daemon_pid
        return pid

    def submit(self, tool: str, arguments: str = "{}", **options: Any) -> int:
        """Send one; its number."""
        self._last += 1
        self._socket.sendall(self._codec.pack(cm.Submit(self._last, tool, arguments, **options)))
        return self._last

    def submit_many(self, tool: str, count: int, arguments: str = "{}", **options: Any) -> None:
        """Send ``count`` equal ones in a single write."""
        first = self._last + 1
        self._last += count
        pack = self._codec.pack
        self._socket.sendall(
            b"".join(pack(cm.Submit(n, tool, arguments, **options)) for n in range(first, first + count))
        )

    def settled(self) -> tuple[int, list[tuple[int, CallResult]]]:
        """Wait for what comes next: (when it was there, what came as number and result)."""
        data = self._read()
        at = time.monotonic_ns()
        return at, [_answer(self._codec.unpack(body)) for body in self._frames.feed(data)]

    def call(self, tool: str, arguments: str = "{}", **options: Any) -> CallResult:
        """One call and its result; nothing else may be in flight."""
        number = self.submit(tool, arguments, **options)
        while True:
            for answered, result in self.settled()[1]:
                assert answered == number, "another call was in flight"
                return result

    def _hear(self) -> list[Any]:
        while True:
            heard = [self._codec.unpack(body) for body in self._frames.feed(self._read())]
            if heard:
                return heard

    def _read(self) -> bytes:
        data = self._socket.recv(_READ)
        if not data:
            raise ConnectionError("the far end closed the connection")
        return data


def _answer(message: object) -> tuple[int, CallResult]:
    if not isinstance(message, cm.Settled):
        raise ConnectionError(f"the far end says {message!r}")
    return message.id, message.result
