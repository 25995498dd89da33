"""Which worker serves a granted call: a ready one at once, else the first that gets free. Owns the line of calls that
have been granted and wait for a worker, per flavour, and when a worker may serve again.

Nothing is placed while no killer is armed; what waits then goes as soon as one is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from protocol._deadlines import NEVER_NS
from supervisor.containment.killer import KillerLink
from supervisor.containment.pool import Pool
from supervisor.containment.workers import Worker
from supervisor.core.call import State
from supervisor.core.respawn import Cause
from supervisor.live_call import LiveCall


class Placement:
    """``place(call, worker)`` starts a call on a worker; False: it could not, and the worker is still free."""

    def __init__(self, killer: KillerLink, place: Callable[[LiveCall, Worker], bool]) -> None:
        self._killer, self._place = killer, place
        self._waiting: dict[str, deque[LiveCall]] = {}
        self.pools: dict[str, Pool] = {}

    def grant(self, call: LiveCall) -> None:
        """The call may run now."""
        pool = self.pools[call.judged.flavour]
        while self._killer.armed and (worker := pool.take()) is not None:
            if self._place(call, worker):
                return
            pool.keep(worker)
            if call.machine.state is State.SETTLED:
                return
        waiting = self._waiting.setdefault(call.judged.flavour, deque())
        waiting.append(call)
        pool.want(len(waiting))
        self._make_room()

    def idle(self, worker: Worker) -> None:
        """A worker is free: the first call that waits for its flavour gets it, else its pool keeps it."""
        pool, waiting = self.pools[worker.flavour], self._waiting.get(worker.flavour)
        while waiting and self._killer.armed and not worker.ended_for:
            call = waiting.popleft()
            pool.want(len(waiting))
            if call.machine.state is State.WAITING and self._place(call, worker):
                return
        pool.keep(worker)
        self._make_room()

    def _make_room(self) -> None:
        """While a line is not served because others have every slot, an idle worker goes, of the flavour with most.

        Looked at whenever a worker gets idle: a slot that was free when the call was granted may be another's by now.
        """
        for flavour, waiting in self._waiting.items():
            if waiting and self.pools[flavour].cramped:
                max(self.pools.values(), key=lambda pool: len(pool.idle)).give_up_one()

    def release(self, call: LiveCall, claims_reusable: bool) -> None:
        """The call's worker has answered. It serves again when it has proven that nothing is left in it, and when the
        kind of tool is one whose leavings such a proof can see."""
        worker, contract = call.worker, call.judged.contract
        assert worker is not None
        worker.call = None
        self.pools[worker.flavour].finished(worker)
        harmless = contract.kind == "command" or contract.read_only or contract.reusable
        may = claims_reusable and harmless and not contract.fresh and not worker.ended_for
        if may and not worker.scratch.work_touched():
            self.idle(worker)
        else:
            self.pools[worker.flavour].retire(worker, Cause.PLANNED)

    def killer_changed(self) -> None:
        """A killer is armed again: what waited for that goes."""
        for flavour, waiting in self._waiting.items():
            pool = self.pools[flavour]
            while self._killer.armed and waiting and (worker := pool.take()) is not None:
                self.idle(worker)

    def withdraw(self, call: LiveCall) -> None:
        """A call that waits leaves the line; any other is left alone."""
        waiting = self._waiting.get(call.judged.flavour)
        if waiting and call in waiting:
            waiting.remove(call)
            self.pools[call.judged.flavour].want(len(waiting))

    def overdue(self, now_ns: int) -> list[LiveCall]:
        """Those whose deadline passed in the line; they have left it."""
        late = [call for waiting in self._waiting.values() for call in waiting if call.judged.deadline_ns <= now_ns]
        for call in late:
            self.withdraw(call)
        return late

    def next_timer_ns(self) -> int:
        """The earliest deadline in the line; NEVER_NS when nobody waits."""
        deadlines = (call.judged.deadline_ns for waiting in self._waiting.values() for call in waiting)
        return min(deadlines, default=NEVER_NS)

    def workers(self) -> Iterator[Worker]:
        """Every worker alive, of all pools."""
        for pool in self.pools.values():
            yield from pool.alive.values()
