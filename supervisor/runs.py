"""Runs of clients: opened, stepped, charged, finished, cancelled, timed out. A shell: `core/run` says when a run ends,
`core/budget` what it may spend, `core/detectors` whether it is stuck, `judgement` what becomes of its calls; this file
carries their effects out and keeps every run's time, so that a run ends at its deadline though nobody asks anything.

A run is on the disk before its client hears of it, and so is its stop. What waits for a person is written with all that
it needs to go on in another life (`revival` of runs: `recalled_runs`).
"""

from __future__ import annotations

import heapq
import itertools
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import assert_never

import trio

from protocol._budgets import Dimension, LimitError, read_limits
from protocol._client_messages import OpenRun
from protocol._deadlines import NEVER_NS, NS_PER_MS, instant_after, valid_budget_ms
from protocol._events import EventKind
from protocol._outcomes import Reason, Status
from protocol._runs import OpenEffect, RunReason, RunStatus
from supervisor.accounts import Accounts
from supervisor.clock import loop_time, now_ns, wall_ms
from supervisor.core import run as machine
from supervisor.core.budget import Refused, run_reason
from supervisor.core.detectors import Detectors
from supervisor.core.profiles import Effective, Objection
from supervisor.core.run import RunMachine, State
from supervisor.journal import run_rows
from supervisor.journal.journal import Journal
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun, RunSpec
from supervisor.run_views import snapshot_of, stop_of, told_at_end, told_at_start

KEPT_RUNS = 1_000
_ANSWER_KEPT = 2_000
_CALL_REASON = {
    RunReason.CLIENT: Reason.CLIENT,
    RunReason.DISCONNECT: Reason.DISCONNECT,
    RunReason.OPERATOR: Reason.OPERATOR,
    RunReason.SHUTDOWN: Reason.SHUTDOWN,
}


class RunRefusal(Exception):  # noqa: N818  # an answer on its way to a client, not an error of ours
    """Why something asked of a run is not done. ``code`` is the wire's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Runs:
    """Every run of this daemon. ``pauses``: whether a run's clock stands still while it waits for a person."""

    def __init__(
        self, boot: str, journal: Journal, accounts: Accounts, make_detectors: Callable[[str], Detectors], pauses: bool
    ) -> None:
        self._boot, self.journal, self.pauses = boot, journal, pauses
        self.accounts, self.ledger = accounts, accounts.ledger
        self._make_detectors = make_detectors
        self._numbers = itertools.count(1)
        self._runs: OrderedDict[str, LiveRun] = OrderedDict()
        self._over: OrderedDict[str, LiveRun] = OrderedDict()
        self._unclosed: dict[str, LiveRun] = {}
        """Over, while a run that is part of it goes on."""
        self._due: list[tuple[int, str]] = []
        self._nap: trio.CancelScope | None = None
        self.tools: Callable[[], list[str]] = list
        self.end_call: Callable[[LiveCall, Status, Reason, str], None]
        self.open_effects: Callable[[str], list[OpenEffect]] = lambda _run: []
        self.check: Callable[[LiveRun], None]
        self.on_stop: list[Callable[[LiveRun], None]] = []
        """Who wants to hear that a run has settled."""
        self.refusers: dict[tuple[object, int], Callable[[str, int], None]] = {}
        """How a finish that is refused is told, by who asked."""

    # ------------------------------------------------------------ time

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep every run's time until cancelled."""
        task_status.started()
        while True:
            with trio.CancelScope() as self._nap:
                self._nap.deadline = loop_time(self._due[0][0] if self._due else NEVER_NS)
                await trio.sleep_forever()
            self._on_time(now_ns())

    def _on_time(self, now: int) -> None:
        while self._due and self._due[0][0] <= now:
            _, name = heapq.heappop(self._due)
            run = self._runs.get(name)
            if run is None:
                continue
            if run.machine.next_timer_ns() <= now:
                self.feed(run, machine.Overdue(now))
            self._keep_time(run)  # it may have moved meanwhile, or be at another stage

    def _keep_time(self, run: LiveRun) -> None:
        at = run.machine.next_timer_ns()
        if at < NEVER_NS:
            heapq.heappush(self._due, (at, run.id))
            if self._nap is not None and self._due[0][0] == at:
                self._nap.deadline = loop_time(at)

    # ------------------------------------------------------------ opening

    def open(self, ask: OpenRun, uid: int, told: Callable[[LiveRun], None], lost: Callable[[], None]) -> None:
        """Begin a run; ``told`` when the disk has it, ``lost`` when that takes nothing. Raises RunRefusal."""
        now = now_ns()
        if self.journal.refuses:
            raise RunRefusal("store_unavailable", self.journal.trouble or "the journal takes nothing")
        parent = None if ask.parent is None else self.running(ask.parent, uid)
        run = self._new_run(ask, uid, parent, now)

        def then(durable: bool) -> None:
            if durable:
                self._keep_time(run)
                told(run)
            else:
                self._abandon(run)
                lost()

        self._runs[run.id] = run
        spec = {**run.spec._asdict(), "secret_key": run.spec.secret_key.hex()}
        changes = run_rows.opened(run.id, uid, spec, run.spec.opened_ms, told_at_start(run))
        self.journal.append(changes, then, keep=False)

    def _new_run(self, ask: OpenRun, uid: int, parent: LiveRun | None, now: int) -> LiveRun:
        limits = _limits(ask)
        effective = self.accounts.budgets.effective(uid, ask.profile, limits, self.tools())
        if isinstance(effective, Objection):
            raise RunRefusal(effective.code, effective.text)
        if ask.workspace is not None and (not ask.workspace.startswith("/") or "\0" in ask.workspace):
            raise RunRefusal("invalid_arguments", f"workspace {ask.workspace[:200]!r} is not an absolute path")
        budget_ms = effective.wall_ms
        if parent is not None:
            budget_ms = min(budget_ms, max(1, (parent.machine.work_until_ns - now) // NS_PER_MS))
        name = f"r_{self._boot}{next(self._numbers):06x}"
        checks = (*effective.checks, *ask.checks)
        spec = RunSpec(
            name,
            uid,
            effective.tenant,
            ask.goal,
            effective.profile,
            ask.session,
            ask.parent,
            ask.workspace,
            checks,
            ask.on_disconnect,
            budget_ms,
            wall_ms(),
            secrets.token_bytes(32),
        )
        run_machine = RunMachine(
            instant_after(now, budget_ms),
            bool(checks),
            effective.wrapup.ms * NS_PER_MS,
            self.pauses,
            effective.max_refusals,
            effective.wrapup.model_calls > 0,
        )
        node = self.accounts.open_run(name, uid, ask.session, None if parent is None else parent.node, effective)
        return LiveRun(spec, effective, node, run_machine, self.detectors_of(effective), now)

    def _abandon(self, run: LiveRun) -> None:
        del self._runs[run.id]
        self.accounts.close_run(run.node)

    def detectors_of(self, effective: Effective) -> Detectors:
        """New ones, of the set that a run was given."""
        return self._make_detectors(effective.detectors)

    def keep(self, run: LiveRun) -> None:
        """A run of an earlier life: suspended, or over."""
        if run.settled:
            self._over[run.id] = run
        else:
            self._runs[run.id] = run
            self._keep_time(run)

    # ------------------------------------------------------------ finding

    def find(self, name: str, uid: int) -> LiveRun:
        """A run of the same uid (root may see all), settled or not. Raises RunRefusal."""
        run = self._runs.get(name) or self._over.get(name)
        if run is None or uid not in (run.spec.uid, 0):
            raise RunRefusal("unknown_run", f"no run {name[:80]!r} is known here (any more)")
        return run

    def running(self, name: str, uid: int) -> LiveRun:
        """A run that takes something new. Raises RunRefusal; for one that has settled with code ``run_settled``."""
        run = self.find(name, uid)
        state = run.machine.state
        if state is State.SETTLED or run.stop is not None:
            raise RunRefusal("run_settled", run.stop.text if run.stop else "the run has ended")
        if state in (State.RUNNING, State.WRAPPING):
            return run
        what = "its completion is being checked" if state is State.CHECKING else "it is stopping"
        raise RunRefusal("run_busy", f"the run takes nothing new: {what}")

    def listed(self, uid: int, everything: bool) -> list[LiveRun]:
        """Runs that go on or are suspended, newest first; with ``everything`` also those that are over."""
        found = [*self._runs.values(), *(self._over.values() if everything else ())]
        mine = [run for run in found if uid in (run.spec.uid, 0)]
        return sorted(mine, key=lambda run: (run.spec.opened_ms, run.id), reverse=True)

    def going(self, name: str) -> LiveRun | None:
        """One that has not settled."""
        return self._runs.get(name)

    def going_on(self) -> list[LiveRun]:
        """Every run that has not settled."""
        return list(self._runs.values())

    def resume(self, run: LiveRun, answer: str) -> bool:
        """A person has answered a run that needs input; False: it has settled. Raises RunRefusal for any other."""
        if run.settled:
            return False
        stop = run.stop
        if stop is None or stop.status is not RunStatus.NEEDS_INPUT:
            what = "it waits for an approval: deadlined approvals" if stop is not None else "it goes on"
            raise RunRefusal("not_waiting", f"the run needs no input: {what}")
        self.feed(run, machine.Answered(now_ns(), answer[:_ANSWER_KEPT]))
        return True

    def shut_down(self) -> None:
        """The daemon stops: runs that go on end with it; those that wait for a person go on waiting."""
        for run in self.going_on():
            if run.machine.state is not State.SUSPENDED:
                self.stop(run, RunStatus.CANCELLED, RunReason.SHUTDOWN, "the daemon is stopping", ends_calls=True)

    def prune(self, before_ms: int) -> None:
        """Let the disk forget what ended long ago."""
        self.journal.append(run_rows.too_old(before_ms))

    # ------------------------------------------------------------ the machine's effects

    def stop(
        self,
        run: LiveRun,
        status: RunStatus,
        reason: RunReason,
        detail: str = "",
        ends_calls: bool = False,
    ) -> None:
        """Something decided that the run may not go on."""
        self.feed(run, machine.StopAsked(status, reason, now_ns(), detail, ends_calls))

    def refused(self, run: LiveRun, refused: Refused) -> None:
        """A reservation was refused: noted, and the run stops for it, unless it was but one call too many at once."""
        self.note(run, EventKind.BUDGET_REFUSED, dimension=refused.dimension, text=refused.text)
        reason = run_reason(refused)
        if reason is not None:
            self.stop(run, RunStatus.BUDGET_EXHAUSTED, RunReason(reason), refused.text)

    def note(self, run: LiveRun, kind: EventKind, call: str | None = None, **data: object) -> None:
        """An event of the run. ``charge`` in it: what it changes of what the run has used."""
        if run.unsaid:
            charge = data.get("charge")
            data["charge"] = {**run.unsaid, **charge} if isinstance(charge, dict) else run.unsaid
            run.unsaid = {}
        self.journal.note(kind, call, run.spec.uid, run.id, **data)

    def feed(self, run: LiveRun, given: machine.Input) -> None:
        """Take an input of the run's machine, and carry out what comes of it."""
        for effect in run.machine.on(given):
            match effect:
                case machine.EndCalls():
                    self._end_calls(run, effect.reason)
                case machine.Check():
                    self.check(run)
                case machine.RefuseFinish():
                    self._refuse_finish(run, effect)
                case machine.WrapUp():
                    self.ledger.open_wrap_up(run.node)
                    self._keep_time(run)
                case machine.Suspend():
                    self._suspend(run, effect)
                case machine.Resume():
                    self._resume(run, effect)
                case machine.Settle():
                    self._settle(run, effect)
                case _:
                    assert_never(effect)

    def _end_calls(self, run: LiveRun, reason: RunReason) -> None:
        why = _CALL_REASON.get(reason, Reason.OPERATOR)
        for call in list(run.in_flight.values()):
            self.end_call(call, Status.CANCELLED, why, f"its run is being stopped ({reason})")
        for child in self._children(run):
            self.stop(child, RunStatus.CANCELLED, RunReason.PARENT, "the run it is part of is being stopped", True)

    def _children(self, run: LiveRun) -> list[LiveRun]:
        return [other for other in self._runs.values() if other.spec.parent == run.id]

    def _refuse_finish(self, run: LiveRun, effect: machine.RefuseFinish) -> None:
        self.note(run, EventKind.FINISH_REFUSED, refusals=effect.refusals, text=effect.feedback)
        finishers, run.finishers = run.finishers, []
        for asked in finishers:
            run.watchers.pop(asked, None)
            tell = self.refusers.pop(asked, None)
            if tell is not None:
                tell(effect.feedback, effect.refusals)

    def _suspend(self, run: LiveRun, effect: machine.Suspend) -> None:
        now = now_ns()
        run.elapsed_ns, run.opened_ns = run.elapsed_ns + now - run.opened_ns, now
        stop = stop_of(run, self.ledger, effect, self.open_effects(run.id), now)
        told = {"status": effect.status, "reason": effect.reason, "remaining_ms": effect.remaining_ns // NS_PER_MS}
        changes = (
            *run_rows.suspended(run.id, run.spec.uid, snapshot_of(run, self.ledger, effect), stop, wall_ms(), told),
            *self.accounts.standing(run.spec.uid, run.spec.session),
        )
        self._keep_time(run)

        def then(_durable: bool) -> None:
            if run.machine.state is State.SUSPENDED:
                run.tell(stop)

        self.journal.append(changes, then)

    def _resume(self, run: LiveRun, effect: machine.Resume) -> None:
        now = now_ns()
        run.stop, run.opened_ns = None, now
        told = {"remaining_ms": (effect.deadline_ns - now) // NS_PER_MS, "answer": effect.answer}
        self.journal.append(run_rows.resumed(run.id, run.spec.uid, wall_ms(), told))
        self._keep_time(run)

    def _settle(self, run: LiveRun, effect: machine.Settle) -> None:
        now = now_ns()
        for child in self._children(run):
            self.stop(child, RunStatus.CANCELLED, RunReason.PARENT, "the run it is part of has ended", True)
        self._spend_models(run)
        stop = stop_of(run, self.ledger, effect, self.open_effects(run.id), now)
        self.ledger.spend(run.node, {Dimension.WALL_MS: stop.deadline.elapsed_ms})
        changes = (
            *run_rows.settled(run.id, run.spec.uid, stop, wall_ms(), told_at_end(run, stop)),
            *self.accounts.standing(run.spec.uid, run.spec.session),
        )
        self._move_over(run)
        self.journal.append(changes, lambda _durable: run.tell(stop))
        for hear in self.on_stop:
            hear(run)

    def _spend_models(self, run: LiveRun) -> None:
        """A model that was asked and has not answered is paid for as it was reserved."""
        for asked in run.asked.values():
            self.ledger.settle(asked.reservation)
        run.asked.clear()

    def _move_over(self, run: LiveRun) -> None:
        self._runs.pop(run.id, None)
        self._over[run.id] = run
        if len(self._over) > KEPT_RUNS:
            self._over.popitem(last=False)
        self._unclosed[run.id] = run
        self._close_nodes()

    def _close_nodes(self) -> None:
        """Children first: a node that has some stays open."""
        for run in reversed(list(self._unclosed.values())):
            if not any(child.spec.parent == run.id for child in (*self._runs.values(), *self._unclosed.values())):
                self.accounts.close_run(run.node)
                del self._unclosed[run.id]


def _limits(ask: OpenRun) -> dict[str, int | None]:
    """The limits that a run asks for, its deadline among them. Raises RunRefusal."""
    try:
        limits = read_limits(ask.limits)
    except LimitError as error:
        raise RunRefusal("invalid_arguments", str(error)) from error
    if ask.deadline_ms is not None:
        if not valid_budget_ms(ask.deadline_ms):
            text = (
                f"deadline_ms {str(ask.deadline_ms)[:40]!r} is not allowed: a whole number of milliseconds, at least 1"
            )
            raise RunRefusal("invalid_arguments", text)
        given = int(ask.deadline_ms)
        wall = limits.get(Dimension.WALL_MS)
        limits[Dimension.WALL_MS] = given if wall is None else min(given, wall)
    return limits
