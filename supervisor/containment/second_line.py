"""The second line of the deadline: what is overdue by 10 ms (or at all, while no killer is armed) is killed here, and
what the kernel has not confirmed within the confirm budget is reported as unconfirmed.

One task for all workers. It sleeps until the earliest instant it knows of; a call that is armed with an earlier one
pokes it, which moves one cancel scope's deadline and schedules nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from protocol._deadlines import NEVER_NS
from supervisor.clock import loop_time, now_ns
from supervisor.containment.kill import SECOND_LINE_NS

if TYPE_CHECKING:
    from supervisor.containment.killer import KillerLink
    from supervisor.containment.workers import Worker


class SecondLine:
    """``workers`` lists those alive; ``unconfirmed(worker)`` is told once per worker whose death does not come."""

    def __init__(
        self,
        workers: Callable[[], Iterable[Worker]],
        killer: KillerLink,
        confirm_budget_ns: int,
        unconfirmed: Callable[[Worker], None],
    ) -> None:
        self._workers = workers
        self._killer = killer
        self._confirm_budget_ns = confirm_budget_ns
        self._unconfirmed = unconfirmed
        self._shot: dict[Worker, bool] = {}
        self._wake_ns = NEVER_NS
        self._nap: trio.CancelScope | None = None
        self.shots = 0

    def poke(self, due_ns: int) -> None:
        """A worker was armed with ``due_ns``: wake in time for it."""
        if due_ns + SECOND_LINE_NS < self._wake_ns:
            self._wake_ns = due_ns + SECOND_LINE_NS
            if self._nap is not None:
                self._nap.deadline = loop_time(self._wake_ns)

    def look_now(self) -> None:
        """Scan at once: the killer is gone, or has come back."""
        self._wake_ns = 0
        if self._nap is not None:
            self._nap.deadline = -math.inf

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with trio.CancelScope() as self._nap:
                self._nap.deadline = loop_time(self._wake_ns)
                await trio.sleep_forever()
            self._wake_ns = self._scan(now_ns())

    def _scan(self, now: int) -> int:
        """Do what is due; the next instant at which something may be."""
        grace = SECOND_LINE_NS if self._killer.armed else 0
        wake, alive = NEVER_NS, set()
        for worker in self._workers():
            alive.add(worker)
            if due := worker.due_ns:
                wake = min(wake, self._judge(worker, due, grace, now))
        self._shot = {worker: told for worker, told in self._shot.items() if worker in alive}
        return wake

    def _judge(self, worker: Worker, due: int, grace: int, now: int) -> int:
        if now < due + grace:
            return due + grace
        if worker not in self._shot:
            self._shot[worker] = False
            self.shots += 1
            worker.kill()
        if worker.kill_again_ns:
            if now < worker.kill_again_ns:
                return worker.kill_again_ns
            worker.kill()
        if now < due + self._confirm_budget_ns:
            return due + self._confirm_budget_ns
        if not self._shot[worker]:
            self._shot[worker] = True
            self._unconfirmed(worker)
        return NEVER_NS
