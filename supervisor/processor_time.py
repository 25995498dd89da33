"""How much processor time the processes of a killed call have used. (An answer brings its own figure.)

The worker's wait status does not say: whatever is killed together with the first process of a pid namespace is reaped
unseen (zap_pid_ns_processes ignores SIGCHLD), and its time is added to nobody's. So it is read where it is kept: from
the worker's control group, which counts everything it ever held; without one, from the processes themselves while they
run, a few calls at a time and more seldom the more there are. Then what they used since the last look is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec
import trio

from protocol._worker_messages import Reaped
from supervisor.clock import now_ns
from supervisor.containment.census import Census
from supervisor.containment.workers import Worker
from supervisor.live_call import LiveCall

_PERIOD_S = 0.1
_AT_ONCE = 4
"""A look at a call costs the loop some 50 µs for each of its processes."""
_US_PER_MS = 1_000


class ProcessorTime:
    """Of the workers that serve the ``live`` calls."""

    def __init__(self, live: Mapping[str, LiveCall]) -> None:
        self._live = live
        self._census = Census()
        self._seen: dict[int, int] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        round_ = 0
        while True:
            await trio.sleep(_PERIOD_S)
            workers = [call.worker for call in self._live.values() if call.worker is not None]
            self._seen = {worker.number: self._seen.get(worker.number, 0) for worker in workers}
            ungrouped = [worker for worker in workers if worker.group.kill is None]
            for index in range(min(_AT_ONCE, len(ungrouped))):
                self._look(ungrouped[(round_ + index) % len(ungrouped)])
            round_ += _AT_ONCE

    def _look(self, worker: Worker) -> None:
        used_ms = self._census.of(worker.pid, now_ns()).cpu_ms
        self._seen[worker.number] = max(used_ms, self._seen[worker.number])

    def completed(self, worker: Worker) -> Reaped | None:
        """The wait status of a dead worker, with all the time that is known of: that of earlier calls included."""
        reaped = worker.reaped
        if reaped is None:
            return None
        known_ms = max(reaped.cpu_ms, _of_group(worker), self._seen.get(worker.number, 0))
        return msgspec.structs.replace(reaped, cpu_ms=known_ms)


def _of_group(worker: Worker) -> int:
    """``usage_usec`` of cpu.stat, which every group of the second version has, with and without controllers."""
    if worker.group.kill is not None:
        with contextlib.suppress(OSError, ValueError), open(f"{worker.group.directories[0]}/cpu.stat") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) // _US_PER_MS
    return 0
