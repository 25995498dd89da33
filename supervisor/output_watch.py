"""Watches what nobody else can while a call runs: how much a Python tool has printed, and whether a call has fallen
silent for longer than its contract allows. Looks every 10 ms, and only while such calls run.

(A command's cap is held by its own worker, exactly; RLIMIT_FSIZE stands behind both.)
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from protocol._deadlines import NS_PER_MS
from protocol._outcomes import Reason, Status
from protocol._quantities import say_duration, say_size
from supervisor.clock import now_ns
from supervisor.live_call import LiveCall

_PERIOD_S = 0.01
_AHEAD_BYTES = 128 << 20
"""File systems allocate ahead of what is written, by this much at most; what takes more has asked for it."""
End = Callable[[LiveCall, Status, Reason, str], None]


class OutputWatch:
    """``end(call, status, reason, text)`` is called at most once per call."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._calls: dict[str, LiveCall] = {}
        self._some = trio.Event()

    def add(self, call: LiveCall, now_ns: int) -> None:
        """A call was dispatched."""
        contract = call.judged.contract
        if contract.kind != "command" or contract.idle_timeout_ms is not None:
            self._calls[call.id] = call
            call.last_activity_ns = now_ns
            self._some.set()

    def discard(self, call: LiveCall) -> None:
        """It has settled."""
        self._calls.pop(call.id, None)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._some.wait()
            await trio.sleep(_PERIOD_S)
            for call in list(self._calls.values()):
                self._look(call)
            if not self._calls:
                self._some = trio.Event()

    def _look(self, call: LiveCall) -> None:
        judged, now = call.judged, now_ns()
        if judged.contract.kind != "command" and call.worker is not None:
            printed = call.worker.scratch.output_bytes()
            if printed > call.output_bytes:
                call.output_bytes, call.last_activity_ns = printed, now
            on_disk = call.worker.scratch.output_on_disk()
            if printed > judged.output_limit or on_disk > judged.output_limit + _AHEAD_BYTES:
                self.discard(call)
                text = f"killed: it printed more than {say_size(judged.output_limit)}"
                self._end(call, Status.KILLED, Reason.OUTPUT_LIMIT, text)
                return
        idle_ms = judged.contract.idle_timeout_ms
        if idle_ms is not None and now - call.last_activity_ns > idle_ms * NS_PER_MS:
            self.discard(call)
            text = f"killed: no output and no progress for {say_duration(idle_ms)}"
            self._end(call, Status.KILLED, Reason.IDLE, text)
