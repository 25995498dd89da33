"""A loop without a daemon and without a model: the test says what is answered, and everything asked for is kept."""

from __future__ import annotations

import json
from typing import TypeVar

from protocol._outcomes import CallResult, Status
from protocol._runs import RunDeadline, RunReason, RunStatus, StopRecord
from supervisor.core import turn_words as words
from supervisor.core.context import Pins
from supervisor.core.conversation import Conversation
from supervisor.core.model_events import Message, ToolCall, ToolSpec, Usage
from supervisor.core.own_tools import OwnTools
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.turn import State, TurnMachine
from supervisor.core.turn_words import Terms

NOW, UNTIL = 5_000_000_000, 65_000_000_000
TOOLS = [ToolSpec(name, f"{name} it", {"type": "object"}) for name in ("look", "pay")]
Kind = TypeVar("Kind")


def call(name: str, named: str = "", **arguments: object) -> ToolCall:
    """As a model asks for it."""
    return ToolCall(named, name, json.dumps(arguments))


def result(tool: str = "look", status: Status = Status.OK, name: str = "c_1", **more: object) -> CallResult:
    """Of a call of the daemon's."""
    return CallResult(name, tool, status, summary=f"{tool}: {status}", **more)  # type: ignore[arg-type]  # by name


def stop(
    status: RunStatus = RunStatus.BUDGET_EXHAUSTED,
    reason: RunReason = RunReason.STEP_BUDGET,
    suspended: bool = False,
) -> StopRecord:
    """A run's."""
    outcome = "suspended" if suspended else "stopped"
    deadline = RunDeadline(60_000, 1, 59_999)
    return StopRecord("r", outcome, status, reason, None, 1, "", "", "none", suspended, deadline, {})


WAITS = stop(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, suspended=True)
ASKS = stop(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, suspended=True)
DONE = stop(RunStatus.COMPLETED, RunReason.FINISH_ACCEPTED)


LIMITED = ProviderFailure(FailureKind.HTTP_STATUS, 429, "slow down")


def failed(failure: ProviderFailure = LIMITED, usage: Usage | None = None, now_ns: int = NOW) -> words.DecideFailed:
    """The model's call has."""
    return words.DecideFailed(failure, usage, now_ns)


class Loop:
    """A machine, what was put into it, and what it wanted. ``reservations`` are numbered as the daemon does."""

    def __init__(self, earlier: list[Message] | None = None, **terms: object) -> None:
        conversation = Conversation("Be careful.", earlier or [])
        conversation.said_by_user("mend it")
        self.machine = TurnMachine(conversation, OwnTools("mend it", TOOLS), Terms(**terms))  # type: ignore[arg-type]
        self.reservations = 0
        self.all: list[words.Effect] = []
        self.last: words.Effects = ()

    def on(self, given: words.Input) -> words.Effects:
        """Put something in; what is wanted now."""
        self.last = self.machine.on(given)
        self.all += self.last
        return self.last

    def wanted(self, kind: type[Kind]) -> Kind:
        """The one effect of this kind that the last input had."""
        (found,) = [effect for effect in self.last if isinstance(effect, kind)]
        return found

    def wants(self) -> list[str]:
        """The names of what the last input had."""
        return [type(effect).__name__ for effect in self.last]

    def paid(self, wraps_up: bool = False, until_ns: int = UNTIL) -> words.Decide:
        """From wherever it looks or reserves to the model."""
        if self.machine.state is State.IDLE:
            self.on(words.Begun())
        if self.machine.state is State.LOOKING:
            self.on(words.Looked(Pins("mend it")))
        self.reservations += 1
        self.on(words.Reserved(self.reservations, until_ns, wraps_up))
        return self.wanted(words.Decide)

    def says(self, *calls: ToolCall, text: str = "", stop: str = "tools", usage: Usage | None = None) -> words.Effects:
        """The model is paid for, and says this."""
        self.paid()
        return self.on(words.Decided(text, calls, stop, usage, NOW))  # type: ignore[arg-type]  # a reason

    def acts(self, *calls: ToolCall, results: list[CallResult]) -> words.Effects:
        """A whole round."""
        self.says(*calls)
        return self.on(words.Acted(tuple(results)))

    def told(self) -> list[str]:
        """What the model reads of its last turn's calls, in order."""
        messages = self.machine.conversation.messages
        last = max(number for number, message in enumerate(messages) if message.role == "assistant")
        return [message.text for message in messages[last:] if message.role == "tool"]

    def transcript_is_whole(self) -> None:
        """Fails unless each request has exactly one result, behind it."""
        assert_whole(self.machine.transcript())


def assert_whole(messages: list[Message]) -> None:
    """Each request has exactly one result, behind it and before the next turn; no result stands alone."""
    open_calls: set[str] = set()
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert message.answers in open_calls, "a result without a request"
            open_calls.remove(message.answers)
        elif message.role == "assistant":
            assert not open_calls, "a turn before the results of the last one"
            ids = [one.id for one in message.calls]
            assert all(ids)
            assert len(set(ids)) == len(ids)
            assert not seen & set(ids)
            open_calls, seen = set(ids), seen | set(ids)
    assert not open_calls, "a request without a result"
