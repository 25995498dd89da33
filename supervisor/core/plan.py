"""A plan: who may do what while it is made and carried out, and when a step of it is done. Every transition is here.

A planner makes a finite plan, an executor works on its current step, and host code, which no model can talk round, says
whether that step is done. What asks the models, and what a person answers, is the loop's.

Rules
1. The goal is fixed when the plan is begun, with its hash. No input changes it, and the state of another goal's plan is
   refused.
2. A plan has 1 to ``MOST_STEPS`` steps. It is taken from the planner, who is offered nothing that may change something
   (`offered`), and stays as it is while it is carried out.
3. A step is done when its condition holds, by what the host has seen: calls that succeeded since the step began, and
   evidence of the run that has not proven another step. A claim that names anything else is refused whole.
4. ``MOST_CLAIMS`` refused claims of one step, or the executor's wish, hand back to the planner. It replaces the steps
   that are not done, and those only, ``MOST_REVISIONS`` times.
5. Behind that a person is asked. The answer goes to the planner, with one revision more.
6. When every step is done the run may finish. A finish that was refused is worked on like a step, or the plan revised.
7. The machine is total: what means nothing in a state changes nothing, and a model hears what it may do instead.

States: PLANNING → EXECUTING → DONE; PLANNING again to revise; ASKING while a person is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from protocol._contracts import ToolDescription
from supervisor.core.goals import goal_hash

MOST_STEPS, MOST_REVISIONS, MOST_CLAIMS = 12, 3, 3
_REMEMBERED = 1_000
_SHOWN = 20
Title = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Role = Literal["planner", "executor"]


class State(StrEnum):
    """Where the plan is."""

    __hash__ = object.__hash__

    PLANNING = "planning"
    EXECUTING = "executing"
    ASKING = "asking"
    DONE = "done"


class EvidenceWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="evidence", tag_field="kind"):
    """``least`` different pieces of evidence are named."""

    least: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1


class CallWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="call", tag_field="kind"):
    """A call of that tool has succeeded since the step began."""

    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


DoneWhen: TypeAlias = EvidenceWanted | CallWanted


class PlanStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step, and how the host sees that it is done."""

    title: Title
    done_when: DoneWhen = EvidenceWanted()


class DoneStep(msgspec.Struct, frozen=True):
    """A step that is done, and what has proven it."""

    title: str
    evidence: tuple[str, ...]


# ---------------------------------------------------------------- inputs


class Planned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The planner's plan, or what it puts in the place of the steps that are not done."""

    steps: Annotated[tuple[PlanStep, ...], msgspec.Meta(min_length=1, max_length=MOST_STEPS)]


class Claimed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The executor says that the current step is done, and by what."""

    evidence: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()


class RevisionAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The executor cannot go on with the plan as it is."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]


class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """The host has seen the end of a call."""

    call: str
    tool: str
    ok: bool


class EvidenceFound(msgspec.Struct, frozen=True, gc=False):
    """The run has something that it had not."""

    name: str


class PersonAnswered(msgspec.Struct, frozen=True, gc=False):
    """The person who was asked has answered."""


Input: TypeAlias = Planned | Claimed | RevisionAsked | CallEnded | EvidenceFound | PersonAnswered

# ---------------------------------------------------------------- effects


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Tell the model that it holds, and what comes next."""

    text: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Tell the model why it does not hold, and what it may do."""

    text: str


class AskPerson(msgspec.Struct, frozen=True, gc=False):
    """The run waits for a person."""

    question: str


Effect: TypeAlias = Accepted | Refused | AskPerson
Effects: TypeAlias = tuple[Effect, ...]


class _Kept(msgspec.Struct):
    """All of a plan's state."""

    goal_hash: str
    state: State = State.PLANNING
    done: list[DoneStep] = []
    steps: list[PlanStep] = []
    """Those that are not done; the first of them is worked on."""
    revisions: int = 0
    claims: int = 0
    calls: dict[str, str] = {}
    """Calls that have succeeded since the step began, and their tools."""
    found: dict[str, bool] = {}
    """Evidence of the run, and whether it has proven a step."""


class PlanMachine:
    """The machine of one plan. ``tools``: the names of those that there are, for conditions that name one."""

    __slots__ = ("_is", "_tools", "goal")

    def __init__(self, goal: str, tools: Iterable[str]) -> None:
        self.goal, self._tools = goal, frozenset(tools)
        self._is = _Kept(goal_hash(goal))

    def on(self, given: Input) -> Effects:
        """Take one input; the effects are to be carried out in order."""
        return _TABLE[self.state, type(given)](self, given)

    @property
    def state(self) -> State:
        """Where it is."""
        return self._is.state

    @property
    def goal_hash(self) -> str:
        """Of the goal that it was begun with."""
        return self._is.goal_hash

    @property
    def role(self) -> Role:
        """Who decides next."""
        return "planner" if self.state in (State.PLANNING, State.ASKING) else "executor"

    @property
    def done(self) -> tuple[DoneStep, ...]:
        """The steps that are done, in order."""
        return tuple(self._is.done)

    @property
    def remaining(self) -> tuple[PlanStep, ...]:
        """The steps that are not; while it is carried out the first is the current one."""
        return tuple(self._is.steps)

    def known_evidence(self) -> tuple[str, ...]:
        """What may prove the current step, the latest last."""
        return (*(name for name, spent in self._is.found.items() if not spent), *self._is.calls)

    def dump(self) -> dict[str, Any]:
        """The state as JSON can carry it."""
        plain: dict[str, Any] = msgspec.to_builtins(self._is)
        return plain

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `dump` gave. Raises ValueError for that of another goal, or for none."""
        kept = msgspec.convert(state, _Kept)
        if kept.goal_hash != self.goal_hash:
            raise ValueError("this is the plan of another goal")
        self._is = kept

    # ------------------------------------------------------------ transitions

    def _plan(self, given: Planned) -> Effects:
        if not 1 <= len(given.steps) <= MOST_STEPS:
            return (Refused(f"a plan of {len(given.steps)} steps; allowed: 1 to {MOST_STEPS}"),)
        wanted = {step.done_when.tool for step in given.steps if isinstance(step.done_when, CallWanted)}
        if unknown := sorted(wanted - self._tools):
            return (Refused(f"no tool {_list(unknown)} is known; available: {_list(sorted(self._tools))}"),)
        self._is.steps = list(given.steps)
        return (Accepted(self._begin()),)

    def _begin(self) -> str:
        """The next step begins, or there is none."""
        self._is.calls, self._is.claims = {}, 0
        if not self._is.steps:
            self._is.state = State.DONE
            return f"all {len(self._is.done)} steps are done: finish, or revise the plan"
        self._is.state, step = State.EXECUTING, self._is.steps[0]
        number = len(self._is.done) + 1
        return f"step {number} of {number + len(self._is.steps) - 1}: {step.title} ({condition(step.done_when)})"

    def _claim(self, given: Claimed) -> Effects:
        step, named = self._is.steps[0], tuple(dict.fromkeys(given.evidence))
        if (missing := self._missing(step.done_when, named)) is not None:
            return self._refuse_claim(step, missing)
        proof = named if isinstance(step.done_when, EvidenceWanted) else self._calls_of(step.done_when.tool)[:1]
        self._is.done.append(DoneStep(step.title, proof))
        self._is.found |= {name: True for name in proof if name in self._is.found}
        del self._is.steps[0]
        return (Accepted(f"step {len(self._is.done)} is done. {self._begin()}"),)

    def _missing(self, wanted: DoneWhen, named: tuple[str, ...]) -> str | None:
        """Why a step is not done; None: it is."""
        known = self.known_evidence()
        if unknown := [name for name in named if name not in known]:
            return f"{_list(unknown)} is no evidence of this step; known: {_list(known)}"
        if isinstance(wanted, CallWanted):
            return None if self._calls_of(wanted.tool) else f"no call of {wanted.tool} has succeeded in this step"
        if len(named) < wanted.least:
            return f"{len(named)} pieces of evidence are named and {wanted.least} needed; known: {_list(known)}"
        return None

    def _calls_of(self, tool: str) -> tuple[str, ...]:
        return tuple(call for call, of in self._is.calls.items() if of == tool)

    def _refuse_claim(self, step: PlanStep, missing: str) -> Effects:
        self._is.claims += 1
        text = f"step {len(self._is.done) + 1} is not done: {missing}"
        if self._is.claims < MOST_CLAIMS:
            return (Refused(f"{text}. Work on it, or revise the plan"),)
        return (Refused(text), *self._hand_back(f"{step.title}: {missing}"))

    def _revise(self, given: RevisionAsked) -> Effects:
        return self._hand_back(given.reason)

    def _hand_back(self, why: str) -> Effects:
        """To the planner, or, when it has had its turns, to a person."""
        if self._is.revisions < MOST_REVISIONS:
            self._is.revisions += 1
            self._is.state = State.PLANNING
            return (Accepted(f"the plan is revised, because: {why}. What is done stays; plan the rest anew"),)
        self._is.state = State.ASKING
        return (AskPerson(f"The plan was revised {MOST_REVISIONS} times and does not work: {why}. How to go on?"),)

    def _go_on(self, _given: PersonAnswered) -> Effects:
        self._is.state = State.PLANNING
        return (Accepted("a person has answered. What is done stays; plan the rest anew"),)

    def _ended(self, given: CallEnded) -> Effects:
        if given.ok:
            self._is.calls[given.call] = given.tool
            _forget_oldest(self._is.calls)
        return ()

    def _found(self, given: EvidenceFound) -> Effects:
        self._is.found.setdefault(given.name, False)
        _forget_oldest(self._is.found)
        return ()

    def _nothing_planned(self, _given: Input) -> Effects:
        return (Refused("there is no step to work on: a plan is needed first"),)

    def _planned_already(self, _given: Planned) -> Effects:
        return (Refused("the plan is fixed while it is carried out; to change it, revise_plan with a reason"),)

    def _all_done(self, _given: Claimed) -> Effects:
        return (Refused("every step is done already: finish, or revise the plan"),)

    def _asked(self, _given: Input) -> Effects:
        return (Refused("a person is asked how to go on"),)

    def _stay(self, _given: Input) -> Effects:
        return ()


_M = PlanMachine
_TABLE: dict[tuple[State, type], Callable[[PlanMachine, Any], Effects]] = {
    (State.PLANNING, Planned): _M._plan,
    (State.PLANNING, Claimed): _M._nothing_planned,
    (State.PLANNING, RevisionAsked): _M._nothing_planned,
    (State.PLANNING, CallEnded): _M._stay,
    (State.PLANNING, PersonAnswered): _M._stay,
    (State.EXECUTING, Planned): _M._planned_already,
    (State.EXECUTING, Claimed): _M._claim,
    (State.EXECUTING, RevisionAsked): _M._revise,
    (State.EXECUTING, CallEnded): _M._ended,
    (State.EXECUTING, PersonAnswered): _M._stay,
    (State.ASKING, Planned): _M._asked,
    (State.ASKING, Claimed): _M._asked,
    (State.ASKING, RevisionAsked): _M._asked,
    (State.ASKING, CallEnded): _M._stay,
    (State.ASKING, PersonAnswered): _M._go_on,
    (State.DONE, Planned): _M._planned_already,
    (State.DONE, Claimed): _M._all_done,
    (State.DONE, RevisionAsked): _M._revise,
    (State.DONE, CallEnded): _M._stay,
    (State.DONE, PersonAnswered): _M._stay,
    **{(state, EvidenceFound): _M._found for state in State},
}


def offered(role: Role, tools: Iterable[ToolDescription]) -> list[ToolDescription]:
    """The tools that a role may call: a planner none that may change something, by its contract."""
    return [tool for tool in tools if role == "executor" or tool.contract.read_only]


def condition(wanted: DoneWhen) -> str:
    """When a step is done, in words."""
    if isinstance(wanted, CallWanted):
        return f"done when a call of {wanted.tool} has succeeded"
    return f"done when {wanted.least} piece{'s' if wanted.least > 1 else ''} of evidence can be named"


def _forget_oldest(kept: dict[str, Any]) -> None:
    if len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]


def _list(names: Sequence[str]) -> str:
    """The latest of them."""
    shown = ", ".join(repr(name[:80]) for name in names[-_SHOWN:])
    return f"{shown} and {len(names) - _SHOWN} earlier" if len(names) > _SHOWN else shown or "nothing"
