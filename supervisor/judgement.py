"""What a run has to say to a call: may it begin, what is its submitter told, what does its end change.

`look` before anything is bound: detectors, and whether the budget would do (a call that is not let through costs its
round and nothing else). `enter` binds: budget and detectors, with the event that announces the call. `settled` gives
back or spends, tells the detectors, and lets the run stop where it must. Between look and enter a person may be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from protocol._budgets import Dimension
from protocol._events import EventKind
from protocol._outcomes import WENT_WELL, CallResult, Delivery, ErrorClass, Notice, Reason, Status
from protocol._runs import Phase, RunReason, RunStatus
from supervisor.clock import now_ns
from supervisor.core import run as machine
from supervisor.core import stop_records
from supervisor.core.budget import Refused, Reservation, call_amounts, run_reason
from supervisor.core.detectors import Ask, Outcome, Verdict
from supervisor.core.fingerprints import outcome_fingerprint, situation
from supervisor.core.intake import Judged, Refusal
from supervisor.core.run import State
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun
from supervisor.rounds import WRAPPING_UP, Rounds, stop_words
from supervisor.run_views import phase_of
from supervisor.runs import RunRefusal, Runs
from supervisor.stake import Stake

_OUTPUT_BYTES = Dimension.OUTPUT_BYTES.value
_NOT_TOLD = (Dimension.BRANCHES.value, _OUTPUT_BYTES)
_NO_STEP = "the run has no step left for it"
_ARGUMENTS_SHOWN = 200


class Look(NamedTuple):
    """A call that a run lets through. ``notices`` go into its result."""

    run: LiveRun
    ask: Ask
    verdict: Verdict
    notices: list[Notice]


class Judgement:
    """One per daemon."""

    def __init__(self, runs: Runs, rounds: Rounds) -> None:
        self._runs, self._rounds, self._ledger = runs, rounds, runs.ledger
        self.doubts: Callable[[LiveRun, Judged, str], list[Notice]] = lambda _run, _judged, _call_fp: []
        """What is to be said of a call that the run may have made before; see `doubts`. May raise Refusal."""

    def run_of(self, name: str, uid: int) -> LiveRun:
        """The run that a call is submitted in, which takes calls. Raises Refusal."""
        try:
            run = self._runs.running(name, uid)
        except RunRefusal as refusal:
            raise Refusal(self._why_not(name, uid, refusal), str(refusal)) from refusal
        if run.machine.state is State.WRAPPING:
            raise Refusal(Reason.BUDGET, WRAPPING_UP)
        return run

    def begins(self, run: LiveRun) -> None:
        """A call of a run is about to be judged. It is of the run from now on: whatever is decided meanwhile, the run
        ends behind what is told of the call."""
        self._runs.feed(run, machine.Began())

    def comes_to_nothing(self, run: LiveRun) -> None:
        """The call that was judged is not begun, and that was told."""
        self._runs.feed(run, machine.Ended(now_ns()))

    def known_run(self, name: str, uid: int) -> LiveRun | None:
        """A run of that user's, whatever became of it; None: there is none."""
        try:
            return self._runs.find(name, uid)
        except RunRefusal:
            return None

    def _why_not(self, name: str, uid: int, refusal: RunRefusal) -> Reason:
        """A call of a run whose budget is used up is refused for that, also by a run that has not settled yet."""
        if refusal.code == "unknown_run":
            return Reason.UNKNOWN_RUN
        decided = self._runs.find(name, uid).machine.stopped_for
        if decided is None or decided.status is not RunStatus.BUDGET_EXHAUSTED:
            return Reason.RUN_SETTLED
        return Reason.TIME_BUDGET if decided.reason is RunReason.TIME_BUDGET else Reason.BUDGET

    def misfit(self, run: LiveRun, refusal: Refusal) -> None:
        """A call of a run was malformed, or of a tool that is not there: it costs its round, and too many in a row end
        the run."""
        self._rounds.call_begins(run)
        self._runs.say_charges(run)
        if refusal.reason is Reason.UNKNOWN_TOOL:
            self._rounds.act_on(run, run.detectors.refused("unknown_tool"))
        elif refusal.reason is Reason.INVALID_ARGUMENTS:
            self._rounds.act_on(run, run.detectors.refused("invalid_arguments"))
        self._rounds.calls_have_ended(run)

    def denied(self, run: LiveRun, refusal: Refusal) -> None:
        """A policy says no: the run is blocked, and nothing of it is tried in another way."""
        self._rounds.call_begins(run)
        self._runs.stop(run, RunStatus.BLOCKED, RunReason.POLICY_DENIED, str(refusal))

    def look(self, run: LiveRun, judged: Judged, call_fp: str) -> Look:
        """Whether the run lets a call through. Raises Refusal: a detector blocks it."""
        if not self._rounds.call_begins(run):
            raise Refusal(Reason.BUDGET, _NO_STEP)
        if run.machine.state is not State.RUNNING:  # the round before ended the run
            raise Refusal(Reason.RUN_SETTLED, "the run has stopped")
        ask = _ask(run, judged, call_fp)
        verdict = run.detectors.before(ask)
        self._rounds.note_fired(run, verdict)
        if verdict.level in ("block", "stop", "too_early"):
            raise self._blocked(run, ask, verdict)
        return Look(run, ask, verdict, [*verdict.notices, *self._doubts_of(run, judged, call_fp)])

    def _doubts_of(self, run: LiveRun, judged: Judged, call_fp: str) -> list[Notice]:
        try:
            return self.doubts(run, judged, call_fp)
        except Refusal as refusal:
            self._rounds.calls_have_ended(run)
            waits = (RunStatus.WAITING_FOR_APPROVAL, RunReason.RECONCILE_REQUIRED)
            self._runs.feed(run, machine.Waited(*waits, now_ns(), str(refusal)))
            raise

    def asks(self, look: Look, call: LiveCall) -> None:
        """A person is about to be asked for a call: it is of its run until that is told. Raises Refusal: the budget
        would not do for it."""
        run = look.run
        self._runs.say_charges(run)  # the call's own event comes when it is approved
        refused = self._ledger.can(run.node, call_amounts(look.ask.tool))
        if refused is not None:
            raise self._unaffordable(run, refused)
        run.in_flight[call.id] = call
        call.over = lambda result: self._asked(run, result)

    def _asked(self, run: LiveRun, result: CallResult) -> None:
        """It waits for the person, and its round with it; or it has ended before anybody was asked."""
        run.in_flight.pop(result.call)
        if result.status is not Status.WAITING_FOR_APPROVAL:
            self._rounds.calls_have_ended(run)
        self._runs.feed(run, machine.Ended(now_ns()))

    def enter(self, look: Look, call: LiveCall) -> Stake:
        """Bind what a call takes of its run's budget. Raises Refusal."""
        reserved = self._ledger.reserve(look.run.node, call_amounts(call.judged.tool))
        if isinstance(reserved, Refused):
            raise self._unaffordable(look.run, reserved)
        return self._bound(look.run, look.ask, look.verdict, call, reserved)

    def resume(self, run: LiveRun, call: LiveCall, reserved: Reservation) -> Stake:
        """Bind a call that a person has approved: detectors and policy have had their say before it was asked about."""
        assert call.call_fp is not None
        self._ledger.announce(reserved)
        self.begins(run)
        stake = self._bound(run, _ask(run, call.judged, call.call_fp), None, call, reserved)
        self.log(stake, call)
        return stake

    def let_go(self, run: LiveRun) -> None:
        """A call of the round that goes on is not executed, and answered."""
        self._rounds.calls_have_ended(run)

    def _bound(self, run: LiveRun, ask: Ask, verdict: Verdict | None, call: LiveCall, reserved: Reservation) -> Stake:
        judged = call.judged
        left = self._ledger.left(run.node, _OUTPUT_BYTES)
        if left is not None:  # and the byte that was reserved
            judged.output_limit = min(judged.output_limit, left + 1)
        token = run.detectors.begin(ask, call.id, verdict)
        run.calls += 1
        run.in_flight[call.id] = call
        if not ask.read_only:
            run.doing[ask.situation_fp] = call
        return Stake(run, ask, reserved, token, 0 if verdict is None else verdict.prior)

    def log(self, stake: Stake, call: LiveCall) -> None:
        """A call that was let through is in the log of its run, before anything else of it is: what it is about to do
        may be on the disk next. One that changes nothing is sent first, and told of while its tool works."""
        if stake.in_log:
            return
        stake.in_log = True
        run, judged = stake.run, call.judged
        told: dict[str, object] = {
            "tool": judged.tool,
            "step": run.step,
            "index": run.index,
            "state_version": run.state_version,
            "fingerprint": call.fingerprint,
            "arguments": _shown(judged),
            "decision": judged.decision,
            "prior": stake.prior,
            "charge": _charged(stake.reservation),
        }
        self._runs.record(run, EventKind.CALL_VALIDATED, call.id, told)

    def sent(self, stake: Stake, call: LiveCall) -> None:
        """Its frame is on its way, mostly: time to count and to tell while its tool works."""
        stake.run.detectors.catch_up()
        self.log(stake, call)

    def retry(self, call: LiveCall) -> Mapping[str, int] | None:
        """What another attempt costs the run of a call; None: the run cannot pay it, and stops for that."""
        if call.stake is None:
            return {}
        run = call.stake.run
        paid = self._ledger.charge(run.node, {Dimension.RETRIES: 1})
        if isinstance(paid, Refused):
            self._runs.refused(run, paid)
            return None
        return paid

    def settled(self, stake: Stake, call: LiveCall, result: CallResult) -> dict[str, int]:
        """A call of a run is over and about to be told: what it changes of what the run has used."""
        run = stake.run
        self.log(stake, call)
        self._notice_deadline(run, result)
        run.in_flight.pop(call.id, None)
        if run.doing and run.doing.get(stake.ask.situation_fp) is call:
            del run.doing[stake.ask.situation_fp]
        charge = self._pay(stake, result)
        if result.reason is Reason.OUTPUT_LIMIT:
            over = self._ledger.can(run.node, {Dimension.OUTPUT_BYTES: 1})
            if over is not None:  # it was the run's limit, and the call asked for more
                self._runs.refused(run, over)
        changed = stop_records.changed_state(result, stake.ask.read_only)
        run.detectors.end(stake.token, _outcome(result, call, stake.ask.call_fp, changed))
        if changed:
            run.state_version += 1
        if run.evidence is not None and result.status in WENT_WELL:
            run.evidence.add(call.id)
        self._heed(run, result)
        run.last = stop_records.last_action(result)
        run.partial.append(stop_records.beginning(result))
        if result.output.streams or result.workdir:
            run.artefacts.extend(stop_records.artefacts(result))
        return charge

    def _notice_deadline(self, run: LiveRun, result: CallResult) -> None:
        """A call that ends with its run may be told before the run's own timer: then it says what the run was doing."""
        if result.reason is Reason.TIME_BUDGET and run.machine.next_timer_ns() <= (now := now_ns()):
            self._runs.feed(run, machine.Overdue(now, phase_of(run) if len(run.in_flight) > 1 else _phase_in(result)))

    def _heed(self, run: LiveRun, result: CallResult) -> None:
        """An end that is no matter for whoever decides: a no is not gone round, and what only a person has is asked
        for."""
        if result.error is None:
            return
        text = result.error.message
        if result.reason is Reason.SANDBOX_DENIED:
            self._runs.stop(run, RunStatus.BLOCKED, RunReason.SANDBOX_DENIED, text)
        elif result.error.class_ is ErrorClass.AUTH:
            self._runs.stop(run, RunStatus.BLOCKED, RunReason.POLICY_DENIED, text)
        elif result.error.class_ is ErrorClass.MISSING_INPUT:
            asked = machine.Waited(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, now_ns(), text)
            self._runs.feed(run, asked)

    def over(self, stake: Stake) -> None:
        """A call of a run was told: what the run was waiting for may come now."""
        run = stake.run
        self._rounds.calls_have_ended(run)
        self._runs.feed(run, machine.Ended(now_ns()))

    def _pay(self, stake: Stake, result: CallResult) -> dict[str, int]:
        """Nothing for a call that never came to its tool. The bytes of its output are paid for as they are."""
        if result.delivery is Delivery.NOT_DELIVERED:
            self._ledger.release(stake.reservation)
            return {name: -amount for name, amount in _charged(stake.reservation).items()}
        written = {_OUTPUT_BYTES: result.output.bytes}
        self._ledger.settle(stake.reservation, written)
        return written if result.output.bytes else {}

    def _blocked(self, run: LiveRun, ask: Ask, verdict: Verdict) -> Refusal:
        run.detectors.blocked(ask, verdict)
        if verdict.settles:
            self._runs.stop(run, *stop_words(verdict.detector), verdict.text)
        else:
            self._rounds.calls_have_ended(run)
        status = Status.TOO_EARLY if verdict.level == "too_early" else Status.DUPLICATE_CALL
        reason = Reason(verdict.detector)
        notices = [Notice(fired.detector, fired.level, fired.text, verdict.attempt) for fired in verdict.fired]
        return Refusal(reason, verdict.text, status, notices, passes=status is Status.TOO_EARLY)

    def _unaffordable(self, run: LiveRun, refused: Refused) -> Refusal:
        self._runs.refused(run, refused)
        passes = run_reason(refused) is None and refused.limit > 0  # of none at all there is nothing to wait for
        return Refusal(Reason.BUDGET, refused.text, passes=passes)


def _phase_in(result: CallResult) -> Phase | None:
    match result.phase:
        case "queue":
            return "queue"
        case "backoff":
            return "backoff"
        case _:
            return None


def _charged(reserved: Reservation) -> dict[str, int]:
    """What a call costs when it begins; what it writes is told when it has ended."""
    return {name: n for name, n in reserved.amounts.items() if name not in _NOT_TOLD}


def _shown(judged: Judged) -> str | None:
    """How the arguments begin, for whoever watches; nothing of a tool that declares a secret among them."""
    if "secret" in judged.contract.roles.values():
        return None
    text = judged.arguments
    return text if len(text) <= _ARGUMENTS_SHOWN else text[:_ARGUMENTS_SHOWN] + "…"


def _ask(run: LiveRun, judged: Judged, call_fp: str) -> Ask:
    contract = judged.contract
    return Ask(
        judged.tool,
        call_fp,
        situation(call_fp, run.state_version),
        now_ns(),
        contract.read_only,
        judged.arguments if contract.read_only else "",
        contract.refresh,
        contract.progress,
        contract.failure_is_feedback,
    )


def _outcome(result: CallResult, call: LiveCall, call_fp: str, changed: bool) -> Outcome:
    """What the detectors are to know of an end. Where failures are results, one that says something else is another:
    tests that fail differently are news. A change that was not made before is news too, unless it is a command's, which
    may have changed nothing."""
    error, contract = result.error, call.judged.contract
    outcome_fp = outcome_fingerprint(result, contract)
    feedback = error is not None and error.class_ is ErrorClass.FEEDBACK
    return Outcome(
        result.status in WENT_WELL,
        outcome_fp,
        result.delivery is Delivery.UNKNOWN,
        killed_at_deadline=result.status is Status.KILLED and result.reason is Reason.TIME_BUDGET,
        error_code="" if error is None else error.code,
        error_place=outcome_fp if feedback else "",
        feedback=feedback,
        own_fingerprint=_own_fingerprint(call, result) if contract.progress == "self" else "",
        artefacts=(call_fp,) if changed and not contract.failure_is_feedback else (),
        changed_state=changed,
    )


def _own_fingerprint(call: LiveCall, result: CallResult) -> str:
    """What a tool that judges its own progress says of it, to its context or in what it returns; nothing said is no
    progress."""
    if call.reached:
        return call.reached
    content = result.content
    said = content.get("fingerprint") if isinstance(content, dict) else None
    return said if isinstance(said, str) else ""
