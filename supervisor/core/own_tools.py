"""What a model is offered now, and what becomes of a call that is the loop's own: the end, a question, the plan.

Without a plan it is offered every tool of the daemon's, `finish` and `ask_user`. With one, the planner is offered those
that change nothing, and whoever carries the plan out all of them; when the end may be asked for is the plan's to say.
What is not offered is not done either, whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from protocol._outcomes import WENT_WELL, CallResult
from supervisor.core.host_tools import ASK_USER, FINISH, Finish, HostToolError, Question, is_host_call, read_host_call
from supervisor.core.model_events import ToolCall, ToolSpec
from supervisor.core.plan import AskPerson, CallEnded, PersonAnswered, PlanMachine, Refused, State
from supervisor.core.plan_tools import is_plan_call, offered_with, read_plan_call
from supervisor.core.progress import progress_of, progress_text

_EVIDENCE_KEPT = 20


class Told(msgspec.Struct, frozen=True):
    """A call that is done with; ``text`` is its result."""

    text: str


Said: TypeAlias = Finish | Question | Told


class OwnTools:
    """``tools``: of the daemon's; ``readers``: the names of those that change nothing. ``plan`` None: there is none."""

    def __init__(
        self, goal: str, tools: Sequence[ToolSpec], readers: Sequence[str] = (), plan: PlanMachine | None = None
    ) -> None:
        own = {FINISH.name, ASK_USER.name}
        self._goal, self._plan = goal, plan
        self._tools = tuple(tool for tool in tools if tool.name not in own)
        self._names, self._readers = frozenset(tool.name for tool in self._tools), frozenset(readers)
        self._evidence: list[str] = []
        self._last = ""

    @property
    def _plans(self) -> bool:
        return self._plan is not None and self._plan.role == "planner"

    def offered(self) -> tuple[ToolSpec, ...]:
        """The tools of the next turn."""
        return (*(tool for tool in self._tools if not self._plans or tool.name in self._readers), *self._own())

    def _own(self) -> tuple[ToolSpec, ...]:
        return (FINISH, ASK_USER) if self._plan is None else offered_with(self._plan)

    def beside(self) -> str:
        """What the daemon does not know of when it says which tools there are."""
        return f"[beside the daemon's tools: {', '.join(tool.name for tool in self._own())}]"

    def is_own(self, call: ToolCall) -> bool:
        """Whether it is for the loop and not for the daemon."""
        return is_host_call(call) or (self._plan is not None and is_plan_call(call))

    def barred(self, call: ToolCall) -> str | None:
        """Why a call of the daemon's is not made now; None: it is. What the daemon does not have is its own to say."""
        if not self._plans or call.name not in self._names or call.name in self._readers:
            return None
        return f"{call.name} may change something, and the plan is not made yet: make it, then carry it out"

    def read(self, call: ToolCall) -> Said:
        """What a call of the loop's own comes to. Raises HostToolError: nothing, and why."""
        if self._plan is not None and is_plan_call(call):
            return self._planned(call, self._plan)
        said = read_host_call(call)
        if isinstance(said, Finish) and (why := self.not_yet()) is not None:
            raise HostToolError(why)
        return said

    def not_yet(self) -> str | None:
        """Why the task cannot be finished now; None: it may be."""
        if self._plan is None or self._plan.state is State.DONE:
            return None
        left = self._plan.remaining
        return f"the next step is not done: {left[0].title}" if left else "there is no plan yet"

    def _planned(self, call: ToolCall, plan: PlanMachine) -> Said:
        effects = plan.on(read_plan_call(call))
        for effect in effects:
            if isinstance(effect, AskPerson):
                return Question(effect.question)
        text = "\n".join(effect.text for effect in effects if not isinstance(effect, AskPerson))
        if any(isinstance(effect, Refused) for effect in effects) and len(effects) == 1:
            raise HostToolError(text)
        return Told(text)

    def ended(self, result: CallResult) -> None:
        """A call of the daemon's is over: it may prove something."""
        self._last = f"{result.tool} {result.call}: {result.status}. {result.summary}".rstrip()
        ok = result.status in WENT_WELL
        if ok:
            self._evidence = [*self._evidence, result.call][-_EVIDENCE_KEPT:]
        if self._plan is not None:
            self._plan.on(CallEnded(result.call, result.tool, ok))

    def answered(self) -> str:
        """A person has answered; what there is to be said of the plan."""
        effects = () if self._plan is None else self._plan.on(PersonAnswered())
        return "\n".join(effect.text for effect in effects if not isinstance(effect, AskPerson))

    def progress(self) -> str:
        """Where the run stands."""
        return progress_text(progress_of(self._goal, self._plan, self._evidence, self._last))

    def dump(self) -> dict[str, Any]:
        """As plain values."""
        plan = None if self._plan is None else self._plan.dump()
        return {"evidence": self._evidence, "last": self._last, "plan": plan}

    def load(self, kept: dict[str, Any]) -> None:
        """What `dump` gave. Raises ValueError."""
        self._evidence, self._last = kept["evidence"], kept["last"]
        if self._plan is not None and kept["plan"] is not None:
            self._plan.load(kept["plan"])
