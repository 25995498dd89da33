"""One run, from its admission to its one settlement: when it goes on, waits, winds up, ends. Every transition is here.

Rules
1. A run settles once; the first reason to stop that was decided is the one that is told.
2. A stop that is decided while calls are in flight waits for them: what was admitted ends by itself, and is counted. A
   stop that ``ends_calls`` (a cancel) has them ended.
3. The deadline is fixed at the admission. Only a suspension moves it: the remainder is stored, and going on sets it to
   now + remainder. With a clock that runs on nothing moves it at all, and a run that waits may become overdue.
4. A run that waits for a person is suspended when nothing of it is in flight, and not before.
5. A finish is taken when nothing is in flight. With checks it is accepted when each has passed, in their order; refused
   by one, the run goes on, at most ``most_refusals`` times, then it is stuck. One that could not be run counts for
   nothing. A check that is a person's suspends the run: a yes goes on with the next check, a no refuses.
6. A budget that is used up leaves room to conclude where the profile holds something back: tools are off, a finish ends
   it with an answer. What is told is that the budget was used up all the same.
7. The machine is total: an input that means nothing in a state changes nothing.

States: RUNNING → CHECKING → SETTLED; STOPPING (decided, calls still in flight); WRAPPING (rule 6); SUSPENDED, from
RUNNING or from CHECKING.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, TypeAlias

import msgspec

from protocol._checks import FieldValue
from protocol._deadlines import NEVER_NS
from protocol._runs import Phase, RunReason, RunStatus


class State(Enum):
    """Where a run is. Hashed by identity, as the table is read per call."""

    __hash__ = object.__hash__

    RUNNING = auto()
    CHECKING = auto()
    STOPPING = auto()
    WRAPPING = auto()
    SUSPENDED = auto()
    SETTLED = auto()


# ---------------------------------------------------------------- inputs


class Began(msgspec.Struct, gc=False):
    """A call of the run is about to be judged, or was approved: it is of the run until it is told of."""


class Ended(msgspec.Struct, gc=False):
    """A call of the run is over."""

    now_ns: int


class StopAsked(msgspec.Struct, gc=False):
    """Something decided that the run may not go on."""

    status: RunStatus
    reason: RunReason
    now_ns: int
    detail: str = ""
    ends_calls: bool = False
    phase: Phase | None = None


class Waited(msgspec.Struct, gc=False):
    """Something of the run waits for a person."""

    status: RunStatus
    reason: RunReason
    now_ns: int
    detail: str = ""


class Answered(msgspec.Struct, gc=False):
    """The person has answered, and nothing else is waited for."""

    now_ns: int
    answer: str = ""


class FinishAsked(msgspec.Struct):
    """Whoever steers thinks that it is done. ``plain``: it was not asked for, the answer is all that was said."""

    answer: str
    now_ns: int
    plain: bool = False
    fields: dict[str, FieldValue] = {}


class CheckEnded(msgspec.Struct, gc=False):
    """``feedback`` None: it has passed. ``ran`` False: it could not be run now, which says nothing of the run."""

    feedback: str | None
    now_ns: int
    ran: bool = True


class Overdue(msgspec.Struct, gc=False):
    """The instant of ``next_timer_ns`` has come. ``phase``: what the run was doing, where somebody knows better."""

    now_ns: int
    phase: Phase | None = None


Input: TypeAlias = Began | Ended | StopAsked | Waited | Answered | FinishAsked | CheckEnded | Overdue

_PASSED = "its deadline passed"

# ---------------------------------------------------------------- effects


class EndCalls(msgspec.Struct, gc=False):
    """End what is in flight."""

    reason: RunReason


class Check(msgspec.Struct, gc=False):
    """Run the completion check of that number, counted from 0."""

    number: int


class RefuseFinish(msgspec.Struct, gc=False):
    """The run goes on, and hears why."""

    feedback: str
    refusals: int


class WrapUp(msgspec.Struct, gc=False):
    """Tools are off; there is time to conclude until ``until_ns``."""

    until_ns: int


class Suspend(msgspec.Struct):
    """Nothing happens until somebody answers. ``remaining_ns`` is what it goes on with. ``answer``: what a person is to
    confirm."""

    status: RunStatus
    reason: RunReason
    detail: str
    remaining_ns: int
    phase: Phase | None = None
    answer: str | None = None
    fields: dict[str, FieldValue] = {}


class Resume(msgspec.Struct, gc=False):
    """It goes on, until ``deadline_ns``, with what the person said. ``phase``: with its completion, which is not for
    whoever steers it."""

    deadline_ns: int
    answer: str = ""
    phase: Phase | None = None


class Settle(msgspec.Struct):
    """The run is over."""

    status: RunStatus
    reason: RunReason
    phase: Phase | None
    detail: str
    at_ns: int
    answer: str | None = None
    fields: dict[str, FieldValue] = {}


Effect: TypeAlias = EndCalls | Check | RefuseFinish | WrapUp | Suspend | Resume | Settle
Effects: TypeAlias = tuple[Effect, ...]

_STAY: Effects = ()
_BUSY = "calls of the run are still in flight; wait for them, then finish"


class Confirming(msgspec.Struct):
    """A finish that a person is to confirm, for another life: ``passed`` checks have let it through."""

    answer: str
    plain: bool
    fields: dict[str, FieldValue]
    passed: int


class RunMachine:
    """``checks``: how many. ``wraps_up``: rule 6; ``wrap_up_ns``: the time held back for it inside the deadline (0: it
    has what is left). ``pauses``: rule 3's clock."""

    __slots__ = (
        "_confirms",
        "_passed",
        "_remaining_ns",
        "_said",
        "_stop",
        "_until_ns",
        "_waits",
        "checks",
        "deadline_ns",
        "in_flight",
        "most_refusals",
        "pauses",
        "refusals",
        "state",
        "wrap_up_ns",
        "wraps_up",
    )

    def __init__(
        self,
        deadline_ns: int,
        checks: int = 0,
        wrap_up_ns: int = 0,
        pauses: bool = True,
        most_refusals: int = 3,
        wraps_up: bool = False,
    ) -> None:
        self.deadline_ns, self.checks, self.wrap_up_ns = deadline_ns, checks, wrap_up_ns
        self.wraps_up = wraps_up or wrap_up_ns > 0
        self.pauses, self.most_refusals = pauses, most_refusals
        self.state = State.RUNNING
        self.in_flight = self.refusals = 0
        self._stop: StopAsked | None = None
        self._waits: Waited | None = None
        self._said: FinishAsked | None = None
        self._passed = 0
        self._confirms = False
        self._until_ns = self._remaining_ns = 0

    def on(self, given: Input) -> Effects:
        """Take one input; the effects are to be carried out in order."""
        return _TABLE[self.state, type(given)](self, given)

    @property
    def stopped_for(self) -> StopAsked | None:
        """The stop that was decided, once one was."""
        return self._stop

    @property
    def waits_for(self) -> RunReason | None:
        """Why it waits for a person, or will as soon as nothing is in flight."""
        return None if self._waits is None else self._waits.reason

    @property
    def finish(self) -> FinishAsked | None:
        """What is asked for or was accepted, while that holds."""
        return self._said

    @property
    def confirming(self) -> Confirming | None:
        """The finish that a person is asked about, while it waits for that."""
        finish = self._said
        if not self._confirms or finish is None:
            return None
        return Confirming(finish.answer, finish.plain, finish.fields, self._passed)

    @property
    def work_until_ns(self) -> int:
        """Until when calls and model calls of the ordinary kind may go on."""
        return self.deadline_ns - self.wrap_up_ns

    @property
    def phase(self) -> Phase:
        """What the run is doing."""
        if self.state is State.CHECKING:
            return "complete"
        if self.state is State.WRAPPING:
            return "wrapup"
        return "tool" if self.in_flight else "decide"

    def next_timer_ns(self) -> int:
        """When `Overdue` is due; NEVER_NS while nothing is."""
        match self.state:
            case State.RUNNING | State.CHECKING:
                return self.work_until_ns
            case State.WRAPPING:
                return self._until_ns
            case State.SUSPENDED:
                return NEVER_NS if self.pauses else self.deadline_ns
            case _:
                return NEVER_NS

    def remaining_ns(self, now_ns: int) -> int:
        """What is left of its time; of a suspended run what it will go on with."""
        if self.state is State.SUSPENDED and self.pauses:
            return self._remaining_ns
        return max(0, self.deadline_ns - now_ns)

    def revive(self, remaining_ns: int, waits: Waited, refusals: int, confirming: Confirming | None = None) -> None:
        """The machine of a run that was suspended in an earlier life."""
        self.state, self._remaining_ns, self._waits, self.refusals = State.SUSPENDED, remaining_ns, waits, refusals
        if confirming is not None:
            self._said = FinishAsked(confirming.answer, waits.now_ns, confirming.plain, confirming.fields)
            self._passed, self._confirms = confirming.passed, True

    # ------------------------------------------------------------ transitions

    def _begin(self, _given: Began) -> Effects:
        self.in_flight += 1
        return _STAY

    def _end(self, given: Ended) -> Effects:
        self.in_flight -= 1
        if self.in_flight:
            return _STAY
        if self.state is State.STOPPING:
            return self._conclude(given.now_ns)
        return self._suspend(given.now_ns) if self._waits is not None and self.state is State.RUNNING else _STAY

    def _stop_for(self, given: StopAsked) -> Effects:
        given.phase = given.phase or self.phase
        self._stop = given
        if not self.in_flight:
            return self._conclude(given.now_ns)
        checking = self.state is State.CHECKING
        self.state = State.STOPPING
        return (EndCalls(given.reason),) if given.ends_calls or checking else _STAY

    def _stop_twice(self, given: StopAsked) -> Effects:
        return (EndCalls(given.reason),) if given.ends_calls else _STAY

    def _overdue(self, given: Overdue) -> Effects:
        early = given.now_ns < self.deadline_ns
        detail = "the time for its work passed: what was left is held back for a last word" if early else _PASSED
        return self._stop_for(
            StopAsked(RunStatus.BUDGET_EXHAUSTED, RunReason.TIME_BUDGET, given.now_ns, detail, phase=given.phase)
        )

    def _conclude(self, now_ns: int) -> Effects:
        assert self._stop is not None
        spent = self._stop.status is RunStatus.BUDGET_EXHAUSTED
        if spent and self.wraps_up and now_ns < self.deadline_ns:
            self.state = State.WRAPPING
            self._until_ns = min(now_ns + (self.wrap_up_ns or self.deadline_ns), self.deadline_ns)
            return (WrapUp(self._until_ns),)
        return self._settle(now_ns)

    def _wrapped(self, given: FinishAsked) -> Effects:
        self._said = given
        return self._settle(given.now_ns)

    def _wrap_ended(self, given: Overdue | StopAsked) -> Effects:
        return self._settle(given.now_ns)

    def _settle(self, now_ns: int) -> Effects:
        assert self._stop is not None
        self.state = State.SETTLED
        stop = self._stop
        return (Settle(stop.status, stop.reason, stop.phase, stop.detail, now_ns, *self._answer()),)

    def _answer(self) -> tuple[str | None, dict[str, FieldValue]]:
        """What was said last of the end, with its fields."""
        return (None, {}) if self._said is None else (self._said.answer, self._said.fields)

    def _wait(self, given: Waited) -> Effects:
        self._waits = self._waits or given
        return _STAY if self.in_flight else self._suspend(given.now_ns)

    def _suspend(self, now_ns: int) -> Effects:
        assert self._waits is not None
        self.state, self._remaining_ns = State.SUSPENDED, max(0, self.deadline_ns - now_ns)
        waits = self._waits
        phase: Phase | None = "complete" if self._confirms else None
        return (Suspend(waits.status, waits.reason, waits.detail, self._remaining_ns, phase, *self._answer()),)

    def _wait_for_confirmation(self, given: Waited) -> Effects:
        if self.in_flight:  # a check is: nobody can be asked yet (rule 4)
            return _STAY
        self._waits, self._confirms = given, True
        return self._suspend(given.now_ns)

    def _go_on(self, given: Answered) -> Effects:
        resume = self._resume(given.now_ns, given.answer)
        if not self._confirms:
            self.state = State.RUNNING
            return (resume,)
        self._confirms, self.state = False, State.CHECKING
        return (resume, *self._checked(CheckEnded(None, given.now_ns)))

    def _not_confirmed(self, given: CheckEnded) -> Effects:
        if not self._confirms or given.feedback is None:
            return _STAY  # a yes is a person's answer, and nothing else is
        resume = self._resume(given.now_ns, "")
        self._confirms, self.state = False, State.CHECKING
        return (resume, *self._checked(given))

    def _resume(self, now_ns: int, answer: str) -> Resume:
        self._waits = None
        if self.pauses:
            self.deadline_ns = now_ns + self._remaining_ns
        return Resume(self.deadline_ns, answer, "complete" if self._confirms else None)

    def _answered_early(self, _given: Answered) -> Effects:
        self._waits = None  # before the last call ended: it was never suspended
        return _STAY

    def _stop_suspended(self, given: StopAsked) -> Effects:
        given.phase = given.phase or "decide"
        self._stop = given
        return self._settle(given.now_ns)

    def _overdue_suspended(self, given: Overdue) -> Effects:
        detail = f"{_PASSED} while it waited for a person"
        return self._stop_suspended(StopAsked(RunStatus.BUDGET_EXHAUSTED, RunReason.TIME_BUDGET, given.now_ns, detail))

    def _finish(self, given: FinishAsked) -> Effects:
        if self.in_flight:
            return (RefuseFinish(_BUSY, self.refusals),)
        self._said, self._passed = given, 0
        if self.checks:
            self.state = State.CHECKING
            return (Check(0),)
        return self._complete(given.now_ns)

    def _complete(self, now_ns: int) -> Effects:
        plain = self._said is not None and self._said.plain
        reason = RunReason.FINAL_TEXT if plain else RunReason.FINISH_ACCEPTED
        self._stop = StopAsked(RunStatus.COMPLETED, reason, now_ns)
        return self._settle(now_ns)

    def _checked(self, given: CheckEnded) -> Effects:
        if self.in_flight:  # it is in flight still: this is not its end
            return _STAY
        if given.feedback is None:
            self._passed += 1
            return (Check(self._passed),) if self._passed < self.checks else self._complete(given.now_ns)
        self.state, self._said = State.RUNNING, None
        self.refusals += given.ran
        if self.refusals <= self.most_refusals:
            return (RefuseFinish(given.feedback, self.refusals),)
        detail = f"its finish was refused {self.refusals} times: {given.feedback}"
        return self._stop_for(StopAsked(RunStatus.STUCK, RunReason.NO_PROGRESS, given.now_ns, detail, phase="complete"))

    def _refuse_finish(self, _given: FinishAsked) -> Effects:
        return (RefuseFinish(_BUSY, self.refusals),)

    def _stay(self, _given: Input) -> Effects:
        return _STAY


_M = RunMachine
_TABLE: dict[tuple[State, type], Callable[[RunMachine, Any], Effects]] = {
    (State.RUNNING, Began): _M._begin,
    (State.RUNNING, Ended): _M._end,
    (State.RUNNING, StopAsked): _M._stop_for,
    (State.RUNNING, Waited): _M._wait,
    (State.RUNNING, Answered): _M._answered_early,
    (State.RUNNING, FinishAsked): _M._finish,
    (State.RUNNING, CheckEnded): _M._stay,
    (State.RUNNING, Overdue): _M._overdue,
    (State.CHECKING, Began): _M._begin,
    (State.CHECKING, Ended): _M._end,
    (State.CHECKING, StopAsked): _M._stop_for,
    (State.CHECKING, Waited): _M._wait_for_confirmation,
    (State.CHECKING, Answered): _M._stay,
    (State.CHECKING, FinishAsked): _M._refuse_finish,
    (State.CHECKING, CheckEnded): _M._checked,
    (State.CHECKING, Overdue): _M._overdue,
    (State.STOPPING, Began): _M._begin,
    (State.STOPPING, Ended): _M._end,
    (State.STOPPING, StopAsked): _M._stop_twice,
    (State.STOPPING, Waited): _M._stay,
    (State.STOPPING, Answered): _M._stay,
    (State.STOPPING, FinishAsked): _M._refuse_finish,
    (State.STOPPING, CheckEnded): _M._stay,
    (State.STOPPING, Overdue): _M._stay,
    (State.WRAPPING, Began): _M._begin,
    (State.WRAPPING, Ended): _M._end,
    (State.WRAPPING, StopAsked): _M._wrap_ended,
    (State.WRAPPING, Waited): _M._stay,
    (State.WRAPPING, Answered): _M._stay,
    (State.WRAPPING, FinishAsked): _M._wrapped,
    (State.WRAPPING, CheckEnded): _M._stay,
    (State.WRAPPING, Overdue): _M._wrap_ended,
    (State.SUSPENDED, Began): _M._begin,
    (State.SUSPENDED, Ended): _M._end,
    (State.SUSPENDED, StopAsked): _M._stop_suspended,
    (State.SUSPENDED, Waited): _M._stay,
    (State.SUSPENDED, Answered): _M._go_on,
    (State.SUSPENDED, FinishAsked): _M._stay,
    (State.SUSPENDED, CheckEnded): _M._not_confirmed,
    (State.SUSPENDED, Overdue): _M._overdue_suspended,
    **{
        (State.SETTLED, kind): _M._stay
        for kind in (Began, Ended, StopAsked, Waited, Answered, FinishAsked, CheckEnded, Overdue)
    },
}
