"""What whoever steers a run reports while it goes on: a new round, a model that is asked, what it used, what was found.

Every charge is made before what it pays for begins: a step when its round begins, a model call before the model is
asked. A round begins by name (`step`), with the first call or model call of a run, or with a model call once the round
before has had calls; one that began with a call ends when its calls have ended.
"""

from __future__ import annotations

from protocol._budgets import Dimension
from protocol._client_messages import KeepNotes, RefuseCall, RetryModel
from protocol._deadlines import remaining_ms
from protocol._events import EventKind
from protocol._runs import RunReason, RunStatus
from supervisor.clock import now_ns
from supervisor.core import run as machine
from supervisor.core.budget import Refused
from supervisor.core.detectors import Verdict
from supervisor.core.prices import Unpriced, price_of, reserve_model_call, used_amounts
from supervisor.core.run import State
from supervisor.core.run_wishes import MOST_NAME, MOST_NOTES, MOST_TEXT, too_long, too_many
from supervisor.live_run import AskedModel, LiveRun
from supervisor.runs import RunRefusal, Runs

_STEP = {Dimension.STEPS.value: 1}
_RETRY = {Dimension.RETRIES.value: 1}
MOST_ASKED = 1_000
"""Model calls of one run that have not been settled."""


ALL_NOTES, _FEW_NOTES = 64_000_000, 16_000
"""Characters of the notes of all runs of one uid, which are kept in memory; what has few of them is not counted."""


class Rounds:
    """One per daemon."""

    def __init__(self, runs: Runs) -> None:
        self._runs, self._ledger = runs, runs.ledger
        self._prices = runs.accounts.budgets.prices

    # ------------------------------------------------------------ steps

    def step(self, run: LiveRun) -> bool:
        """A new round. False: the run stops instead. Raises RunRefusal while it wraps up."""
        self._refuse_wrapping(run)
        return self.begin_step(run, asked=True)

    def begin_step(self, run: LiveRun, asked: bool = False) -> bool:
        """Close the round that goes on and charge another. False: the run stops for it."""
        if run.step_is_open:
            self.close_step(run)
        if run.machine.state is not State.RUNNING:
            return False
        if run.unsaid:
            self._runs.say_charges(run)
        self._runs.accounts.keep_time()
        changes = self._ledger.charge(run.node, _STEP)
        if isinstance(changes, Refused):
            self._runs.refused(run, changes)
            return False
        run.step += 1
        run.index = 0
        run.step_is_open, run.step_is_asked, run.step_is_used = True, asked, False
        if asked:
            self._runs.note(run, EventKind.STEP_BEGUN, step=run.step, charge=changes)
        else:  # it begins with what is about to be noted: no event of its own
            run.unsaid = changes
        return True

    def call_begins(self, run: LiveRun) -> bool:
        """A call is asked for: it belongs to the round that goes on, or begins one. False: the run stops for it."""
        if not run.step_is_open and not self.begin_step(run):
            return False
        run.step_is_used = True
        run.index += 1
        return True

    def calls_have_ended(self, run: LiveRun) -> None:
        """A call of the round is not in flight any more: one that nobody began by name is over with its last."""
        if not run.in_flight and run.step_is_open and run.step_is_used and not run.step_is_asked:
            self.close_step(run)

    def close_step(self, run: LiveRun) -> None:
        """A round is over. Without anything new in it for long enough the run stops, or asks a person."""
        if not run.step_is_open:
            return
        run.step_is_open = False
        if not run.step_is_used:
            return  # a model was asked and nothing was done: nothing new could come of it
        self.act_on(run, run.detectors.step_over())

    def act_on(self, run: LiveRun, verdict: Verdict) -> None:
        """What a detector said of the run as a whole."""
        if not verdict.fired:
            return
        self.note_fired(run, verdict)
        if not verdict.settles:
            return
        if verdict.action == "ask":
            waited = machine.Waited(RunStatus.NEEDS_INPUT, RunReason.NO_NEW_EVIDENCE, now_ns(), verdict.text)
            self._runs.feed(run, waited)
        else:
            self._runs.stop(run, *stop_words(verdict.detector), verdict.text)

    def note_fired(self, run: LiveRun, verdict: Verdict) -> None:
        """Every detector that fired is in the log, and the last ones in the stop record."""
        for fired in verdict.fired:
            run.fired.append(fired)
            self._runs.note(
                run,
                EventKind.DETECTOR_FIRED,
                fired.call,
                detector=fired.detector,
                level=fired.level,
                count=fired.count,
                key=fired.key,
                step=run.step,
                observed=run.detectors.settings.observe,
            )

    # ------------------------------------------------------------ models

    def reserve_model(self, run: LiveRun, model: str, max_in: int, max_out: int) -> tuple[int, int] | None:
        """The number of the reservation and the milliseconds that are left; None: the run stops for it.

        Raises RunRefusal for a model whose price must be known and is not, and for amounts that cannot be meant.
        """
        _refuse(too_long("model", model, MOST_NAME) or too_many(max_in=max_in, max_out=max_out))
        if len(run.asked) >= MOST_ASKED:
            raise RunRefusal("overloaded", f"{MOST_ASKED} model calls of the run have not been settled; settle one")
        wraps_up = run.machine.state is State.WRAPPING
        if not wraps_up and (not run.step_is_open or run.step_is_used) and not self.begin_step(run):
            return None
        price = price_of(self._prices, model)
        reserved = reserve_model_call(self._ledger, run.node, price, model, max_in, max_out)
        if isinstance(reserved, Unpriced):
            raise RunRefusal("unknown_price", reserved.text)
        if isinstance(reserved, Refused):
            self._refused(run, reserved, wraps_up)
            return None
        run.retry_waits = False
        run.reservations += 1
        number, now = run.reservations, now_ns()
        run.asked[number] = AskedModel(model, reserved, now)
        self._runs.note(run, EventKind.BUDGET_RESERVED, reservation=number, charge=reserved.amounts)
        self._runs.note(run, EventKind.DECIDE_STARTED, step=run.step, model=model, reservation=number)
        until = run.machine.next_timer_ns()
        return number, remaining_ms(until, now)

    def _refused(self, run: LiveRun, refused: Refused, wraps_up: bool) -> None:
        if wraps_up:  # nothing is left to conclude with: the stop that was decided is told
            self._runs.feed(run, machine.Overdue(now_ns()))
        else:
            self._runs.refused(run, refused)

    def settle_model(
        self, run: LiveRun, number: int, tokens_in: int | None, tokens_out: int | None, cached_in: int
    ) -> None:
        """A model has answered. Raises RunRefusal for a reservation that is not open."""
        _refuse(too_many(tokens_in=tokens_in, tokens_out=tokens_out, cached_in=cached_in))
        asked = run.asked.pop(number, None)
        if asked is None:
            raise RunRefusal("unknown_reservation", f"reservation {number} of {run.id} is not open")
        price = price_of(self._prices, asked.model)
        used = used_amounts(asked.reservation.amounts, price, tokens_in, tokens_out, cached_in)
        self._ledger.settle(asked.reservation, used)
        before = asked.reservation.amounts
        changes = {name: used.get(name, 0) - before.get(name, 0) for name in {*used, *before}}
        charge = {name: change for name, change in changes.items() if change}
        self._runs.note(run, EventKind.BUDGET_SETTLED, reservation=number, charge=charge)
        self._runs.note(
            run,
            EventKind.DECIDE_ENDED,
            reservation=number,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            duration_ms=(now_ns() - asked.started_ns) // 1_000_000,
        )

    def retry_model(self, run: LiveRun, ask: RetryModel) -> bool:
        """A model is to be asked again: charged before the wait. False: the run stops for it."""
        _refuse(too_long("detail", ask.detail, MOST_TEXT) or too_many(delay_ms=ask.delay_ms))
        changes = self._ledger.charge(run.node, _RETRY)
        if isinstance(changes, Refused):
            self._runs.refused(run, changes)
            return False
        run.retry_waits = True
        run.retries += 1
        told: dict[str, object] = {"class": ask.cause, "delay_ms": ask.delay_ms, "text": ask.detail}
        self._runs.note(run, EventKind.RETRY_SCHEDULED, None, step=run.step, charge=changes, **told)
        return True

    # ------------------------------------------------------------ what whoever steers it says of itself

    def refuse_call(self, run: LiveRun, ask: RefuseCall) -> bool:
        """A call of something that is no tool of the daemon's was malformed. False: the run stops for it."""
        _refuse(too_long("text", ask.text, MOST_TEXT))
        self._refuse_wrapping(run)
        if not self.call_begins(run):
            return False
        self._runs.note(
            run,
            EventKind.CALL_REFUSED,
            step=run.step,
            tool=ask.tool[:MOST_NAME],
            reason=ask.reason,
            text=ask.text,
            decision=ask.decision,
        )
        self.act_on(run, run.detectors.refused(ask.reason))
        self.calls_have_ended(run)
        return run.machine.state is State.RUNNING

    def ask_person(self, run: LiveRun, question: str) -> None:
        """Nothing but an answer of a person lets the run go on."""
        _refuse(too_long("the question", question, MOST_TEXT))
        self._refuse_wrapping(run)
        waited = machine.Waited(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, now_ns(), question)
        self._runs.feed(run, waited)

    def keep_notes(self, run: LiveRun, ask: KeepNotes) -> None:
        """What is needed to go on with the run; with a suspension it is on the disk."""
        _refuse(too_long("notes", ask.notes, MOST_NOTES))
        for step in ask.folded:
            self._runs.note(run, EventKind.FOLDED, step=step)
        run.notes = ""  # to go on with nothing is better than with what is out of date
        if len(ask.notes) > _FEW_NOTES:
            kept = sum(len(one.notes) for one in self._runs.going_on() if one.spec.uid == run.spec.uid)
            if kept + len(ask.notes) > ALL_NOTES:
                raise RunRefusal(
                    "overloaded", f"notes of all runs of uid {run.spec.uid} have at most {ALL_NOTES} characters"
                )
        run.notes = ask.notes

    # ------------------------------------------------------------ evidence

    def evidence(self, run: LiveRun, name: str) -> bool:
        """Something was found; whether the run had never seen it."""
        _refuse(too_long("evidence", name, MOST_TEXT))
        novel = run.detectors.evidence(name)
        if run.evidence is not None:
            run.evidence.add(name)
        self._runs.note(run, EventKind.EVIDENCE_ADDED, evidence=name[:MOST_NAME], novel=novel)
        return novel

    def _refuse_wrapping(self, run: LiveRun) -> None:
        if run.machine.state is State.WRAPPING:
            raise RunRefusal("wrapping_up", WRAPPING_UP)


WRAPPING_UP = "the budget is used up and tools are off; conclude with what is known, then finish"
_STOPS = {
    "unknown_tool": (RunStatus.TOOL_FAILED, RunReason.UNKNOWN_TOOL),
    "invalid_arguments": (RunStatus.TOOL_FAILED, RunReason.INVALID_ARGUMENTS),
}


def _refuse(objection: str | None) -> None:
    if objection is not None:
        raise RunRefusal("invalid_arguments", objection)


def stop_words(detector: str) -> tuple[RunStatus, RunReason]:
    """The status and the reason of a run that a detector stops."""
    return _STOPS.get(detector) or (RunStatus.STUCK, RunReason(detector))
