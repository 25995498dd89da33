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
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import assert_never

import msgspec
import trio

from protocol._budgets import Dimension, LimitError
from protocol._client_messages import OpenRun
from protocol._deadlines import NEVER_NS, NS_PER_MS, instant_after
from protocol._events import EventKind
from protocol._outcomes import Reason, Status
from protocol._runs import OpenEffect, RunReason, RunStatus, StopRecord
from supervisor.accounts import Accounts
from supervisor.clock import loop_time, now_ns, wall_ms
from supervisor.core import run as machine
from supervisor.core import stop_records
from supervisor.core.budget import Refused, run_reason
from supervisor.core.detectors import Detectors
from supervisor.core.profiles import Effective, Objection, with_last_word
from supervisor.core.run import RunMachine, State
from supervisor.core.run_wishes import MOST_TEXT, limits_of, refuse_opening, too_long
from supervisor.journal import run_rows
from supervisor.journal.journal import Journal
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun, RunSpec
from supervisor.run_views import phase_of, snapshot_of, stop_of, told_at_end, told_at_start

KEPT_RUNS = 1_000
MOST_RUNS = 2_000
"""That have not settled, of one uid: each is kept in memory whole, and all of them may have to end at once."""
_CALL_REASON = {
    RunReason.CLIENT: Reason.CLIENT,
    RunReason.DISCONNECT: Reason.DISCONNECT,
    RunReason.OPERATOR: Reason.OPERATOR,
    RunReason.SHUTDOWN: Reason.SHUTDOWN,
}


_CHECKS_CUT = "the budget was used up before the checks had ended; conclude with what is known, then finish"


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
        self._parts: defaultdict[str, dict[str, LiveRun]] = defaultdict(dict)
        """Of a run, those that are part of it and have not been closed."""
        self._going: Counter[int] = Counter()
        """How many have not settled, by uid."""
        self._due: list[tuple[int, str]] = []
        self._nap: trio.CancelScope | None = None
        self._shut = False
        self.tools: Callable[[], list[str]] = list
        self.end_call: Callable[[LiveCall, Status, Reason, str], None]
        self.open_effects: Callable[[str], list[OpenEffect]] = lambda _run: []
        self.check: Callable[[LiveRun, int], None]
        """Run the completion check of that number."""
        self.on_stop: list[Callable[[LiveRun], None]] = []
        """Who wants to hear that a run has settled."""
        self.on_resume: list[Callable[[LiveRun], None]] = []
        """Who wants to hear that a run goes on after a person has answered."""
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
                self.feed(run, machine.Overdue(now, phase_of(run)))
            self._keep_time(run)  # it may have moved meanwhile, or be at another stage

    def notice_time(self, run: LiveRun) -> None:
        """Whoever asks may be earlier than the timer: what is overdue is so for both. Raises RunRefusal."""
        now = now_ns()
        if run.machine.next_timer_ns() <= now:
            self.feed(run, machine.Overdue(now, phase_of(run)))
            self.running(run.id, run.spec.uid)

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
        if self._shut:
            raise RunRefusal("shutdown", "the daemon is stopping")
        if self.journal.refuses:
            raise RunRefusal("store_unavailable", self.journal.trouble or "the journal takes nothing")
        if self._going[uid] >= MOST_RUNS:
            raise RunRefusal("overloaded", f"{MOST_RUNS} runs of uid {uid} have not ended; end one, then open another")
        parent = None if ask.parent is None else self._parent(ask.parent, uid)
        run = self._new_run(ask, uid, parent, now)
        found: list[run_rows.AccountRow] = []

        def then(durable: bool) -> None:
            run.known = durable
            if durable:
                self.accounts.found(run.node, found)
                self._keep_time(run)
                told(run)
            else:
                self._abandon(run)
                lost()

        run.known = False
        self._add(run)
        spec = {**run.spec._asdict(), "secret_key": run.spec.secret_key.hex()}
        changes = run_rows.opened(run.id, uid, spec, run.spec.opened_ms, told_at_start(run))
        sought = self.accounts.sought(run.node)
        if sought is not None:
            changes = (*changes, run_rows.look_up(sought, found))
        self.journal.append(changes, then, keep=False)

    def _parent(self, name: str, uid: int) -> LiveRun:
        parent = self.running(name, uid)
        if parent.machine.state is State.WRAPPING:
            raise RunRefusal("wrapping_up", f"run {parent.id} has used up its budget: nothing new is part of it")
        return parent

    def _new_run(self, ask: OpenRun, uid: int, parent: LiveRun | None, now: int) -> LiveRun:
        objection = refuse_opening(ask, parent.spec.session if parent else None, parent is not None)
        if objection is not None:
            raise RunRefusal("invalid_arguments", objection)
        session = ask.session if parent is None else parent.spec.session
        try:
            limits = limits_of(ask)
        except LimitError as error:
            raise RunRefusal("invalid_arguments", str(error)) from error
        effective = self.accounts.budgets.effective(uid, ask.profile, limits, self.tools())
        if isinstance(effective, Objection):
            raise RunRefusal(effective.code, effective.text)
        if ask.agent is not None or ask.wrapup:
            effective = with_last_word(effective)
        budget_ms = effective.wall_ms
        if parent is not None:
            budget_ms = min(budget_ms, max(1, (parent.machine.work_until_ns - now) // NS_PER_MS))
        spec = RunSpec(
            f"r_{self._boot}{next(self._numbers):06x}",
            uid,
            effective.tenant,
            ask.goal,
            effective.profile,
            session,
            ask.parent,
            ask.workspace,
            (*effective.checks, *ask.checks),
            ask.on_disconnect,
            budget_ms,
            wall_ms(),
            secrets.token_bytes(32),
            ask.agent,
        )
        run_machine = self.machine_of(spec, effective, instant_after(now, budget_ms))
        node = self.accounts.open_run(spec.id, uid, session, None if parent is None else parent.node, effective)
        return LiveRun(spec, effective, node, run_machine, self.detectors_of(effective), now)

    def machine_of(self, spec: RunSpec, effective: Effective, deadline_ns: int) -> RunMachine:
        """A new one, for a run with these terms."""
        wrapup = effective.wrapup
        return RunMachine(
            deadline_ns,
            len(spec.checks),
            wrapup.ms * NS_PER_MS,
            self.pauses,
            effective.max_refusals,
            wrapup.model_calls > 0,
        )

    def _add(self, run: LiveRun) -> None:
        self._runs[run.id] = run
        self._going[run.spec.uid] += 1
        if run.spec.parent is not None:
            self._parts[run.spec.parent][run.id] = run

    def _abandon(self, run: LiveRun) -> None:
        """The disk did not take it: it never was."""
        if not run.settled:  # else it has been ended meanwhile, with the run that it was part of
            self._take_out(run)
            self._close(run)
        self._over.pop(run.id, None)

    def _take_out(self, run: LiveRun) -> None:
        del self._runs[run.id]
        self._going[run.spec.uid] -= 1
        if not self._going[run.spec.uid]:
            del self._going[run.spec.uid]

    def detectors_of(self, effective: Effective) -> Detectors:
        """New ones, of the set that a run was given."""
        return self._make_detectors(effective.detectors)

    def keep(self, run: LiveRun) -> None:
        """A run of an earlier life: suspended, or over."""
        if run.settled:
            self._over[run.id] = run
        else:
            self._add(run)
            self._keep_time(run)

    # ------------------------------------------------------------ finding

    def find(self, name: str, uid: int) -> LiveRun:
        """A run of the same uid (root may see all), settled or not. Raises RunRefusal."""
        run = self._runs.get(name) or self._over.get(name)
        if run is None or not run.known or uid not in (run.spec.uid, 0):
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
        mine = [run for run in found if run.known and uid in (run.spec.uid, 0)]
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
        if (objection := too_long("the answer", answer, MOST_TEXT)) is not None:
            raise RunRefusal("invalid_arguments", objection)
        stop = run.stop
        if stop is None or stop.status is not RunStatus.NEEDS_INPUT:
            what = stop_records.hint_of(stop.status, stop.reason) if stop is not None else "it goes on"
            raise RunRefusal("not_waiting", f"the run needs no input: {what}")
        self.feed(run, machine.Answered(now_ns(), answer))
        if run.approvals:  # it was asked for more than that, and its time stands still for those too
            waits = (RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED)
            self.feed(run, machine.Waited(*waits, now_ns(), "calls of it wait for a person"))
        return True

    def shut_down(self) -> None:
        """The daemon stops: runs that go on end with it; those that wait for a person go on waiting."""
        self._shut = True
        for run in self.going_on():
            if run.machine.state is not State.SUSPENDED:
                self.stop(run, RunStatus.CANCELLED, RunReason.SHUTDOWN, "the daemon is stopping", ends_calls=True)

    async def wait_told(self) -> None:
        """Wait until no run goes on but those that wait for a person, and whoever waited for one knows its end."""
        while any(run.machine.state is not State.SUSPENDED for run in self.going_on()) or any(
            run.stop is None or run.stop.resumable for run in self._over.values()
        ):
            await trio.sleep(0.005)

    def prune(self, before_ms: int) -> None:
        """Let the disk forget what ended long ago."""
        self.journal.append(run_rows.too_old(before_ms, self.accounts.in_use()))

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
        self.feed(run, machine.StopAsked(status, reason, now_ns(), detail, ends_calls, phase_of(run)))

    def refused(self, run: LiveRun, refused: Refused) -> None:
        """A reservation was refused: noted, and the run stops for it, unless it was but one call too many at once."""
        self.note(run, EventKind.BUDGET_REFUSED, dimension=refused.dimension, text=refused.text)
        reason = run_reason(refused)
        if reason is not None:
            self.stop(run, RunStatus.BUDGET_EXHAUSTED, RunReason(reason), refused.text)

    def note(self, run: LiveRun, kind: EventKind, call: str | None = None, **data: object) -> None:
        """An event of the run. ``charge`` in it: what it changes of what the run has used."""
        self.record(run, kind, call, data)

    def record(self, run: LiveRun, kind: EventKind, call: str | None, data: dict[str, object]) -> None:
        """`note` with its values at hand: of each call there is one."""
        if run.unsaid:
            charge = data.get("charge")
            data["charge"] = {**run.unsaid, **charge} if isinstance(charge, dict) else run.unsaid
            run.unsaid = {}
        spec = run.spec
        self.journal.note(kind, call, spec.uid, spec.id, **data)

    def say_charges(self, run: LiveRun) -> None:
        """No event of the run follows that could carry what was charged for its round: the round has one of its own."""
        if run.unsaid:
            self.note(run, EventKind.STEP_BEGUN, step=run.step)

    def feed(self, run: LiveRun, given: machine.Input) -> None:
        """Take an input of the run's machine, and carry out what comes of it."""
        for effect in run.machine.on(given):
            match effect:
                case machine.EndCalls():
                    self._end_calls(run, effect.reason)
                case machine.Check():
                    self.check(run, effect.number)
                case machine.RefuseFinish():
                    self._refuse_finish(run, effect)
                case machine.WrapUp():
                    self.ledger.open_wrap_up(run.node)
                    self._keep_time(run)
                    if run.finishers:  # its checks were cut off: nobody else would tell who asked for them
                        self._refuse_finish(run, machine.RefuseFinish(_CHECKS_CUT, run.machine.refusals))
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
        return list(self._parts.get(run.id, {}).values())

    def _refuse_finish(self, run: LiveRun, effect: machine.RefuseFinish) -> None:
        run.refused = effect.feedback
        self.note(run, EventKind.FINISH_REFUSED, refusals=effect.refusals, text=effect.feedback)
        finishers, run.finishers = run.finishers, []
        for asked in finishers:
            run.watchers.pop(asked, None)
            tell = self.refusers.pop(asked, None)
            if tell is not None:
                tell(effect.feedback, effect.refusals)

    def _suspend(self, run: LiveRun, effect: machine.Suspend) -> None:
        now = now_ns()
        self.say_charges(run)
        run.elapsed_ns, run.opened_ns = run.elapsed_ns + now - run.opened_ns, now
        stop = stop_of(run, self.ledger, effect, self.open_effects(run.id), now)
        told = {"status": effect.status, "reason": effect.reason, "remaining_ms": effect.remaining_ns // NS_PER_MS}
        changes = (
            *run_rows.suspended(run.id, run.spec.uid, snapshot_of(run, self.ledger, effect), stop, wall_ms(), told),
            *self.accounts.standing(run.spec.uid, run.spec.session),
        )
        self._keep_time(run)

        def then(durable: bool) -> None:
            if run.machine.state is State.SUSPENDED:
                run.tell(_as_told(stop, durable))

        self.journal.append(changes, then)

    def _resume(self, run: LiveRun, effect: machine.Resume) -> None:
        now = now_ns()
        if not run.machine.pauses:
            run.elapsed_ns += now - run.opened_ns
        run.stop, run.opened_ns = None, now
        told = {"remaining_ms": (effect.deadline_ns - now) // NS_PER_MS, "answer": effect.answer, "phase": effect.phase}
        self.journal.append(run_rows.resumed(run.id, run.spec.uid, wall_ms(), told))
        self._keep_time(run)
        for hear in self.on_resume:
            hear(run)

    def _settle(self, run: LiveRun, effect: machine.Settle) -> None:
        now = now_ns()
        for child in self._children(run):
            self.stop(child, RunStatus.CANCELLED, RunReason.PARENT, "the run it is part of has ended", True)
        self.say_charges(run)
        self._spend_models(run)
        stop = stop_of(run, self.ledger, effect, self.open_effects(run.id), now)
        self.ledger.spend(run.node, {Dimension.WALL_MS: stop.deadline.elapsed_ms})
        run.ending = stop
        changes = (
            *run_rows.settled(run.id, run.spec.uid, stop, wall_ms(), told_at_end(run, stop)),
            *self.accounts.standing(run.spec.uid, run.spec.session),
        )
        run.notes = ""
        self._move_over(run)
        with self.journal.together():  # what waits for a person is void in the log before the run is over there
            for hear in self.on_stop:
                hear(run)
            self.journal.append(changes, lambda durable: run.tell(_as_told(stop, durable)))

    def _spend_models(self, run: LiveRun) -> None:
        """A model that was asked and has not answered is paid for as it was reserved."""
        for asked in run.asked.values():
            self.ledger.settle(asked.reservation)
        run.asked.clear()

    def _move_over(self, run: LiveRun) -> None:
        self._take_out(run)
        self._over[run.id] = run
        if len(self._over) > KEPT_RUNS:
            self._over.popitem(last=False)
        self._unclosed[run.id] = run
        self._close(run)

    def _close(self, run: LiveRun) -> None:
        """Give its node back, and then that of the run it was part of, when that one is over: a node closes after those
        below it."""
        if self._parts.get(run.id):
            return
        self.accounts.close_run(run.node)
        self._unclosed.pop(run.id, None)
        if (parent := run.spec.parent) is not None:
            self._close_above(run, parent)

    def _close_above(self, run: LiveRun, parent: str) -> None:
        parts = self._parts[parent]
        parts.pop(run.id, None)
        if parts:
            return
        del self._parts[parent]
        above = self._unclosed.get(parent)
        if above is not None:
            self._close(above)


def _as_told(stop: StopRecord, durable: bool) -> StopRecord:
    """A record that the disk has not taken says so."""
    return stop if durable else msgspec.structs.replace(stop, durable=False)
