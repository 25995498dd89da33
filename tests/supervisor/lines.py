"""A line to a daemon that is not there: it answers each message as the daemon would, unless the test says otherwise,
and keeps what it was asked. And models that say what the test has written down."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import trio

from protocol import _client_messages as cm
from protocol._events import Event
from protocol._runs import StopRecord
from supervisor.agent import Agent
from supervisor.core.context import Pins
from supervisor.core.conversation import Conversation
from supervisor.core.model_events import ModelError, ModelEvent, Request, Stop, Text, ToolCall, Usage
from supervisor.core.own_tools import OwnTools
from supervisor.core.provider_failures import ProviderFailure
from supervisor.core.turn import TurnMachine
from supervisor.core.turn_words import Terms
from tests.supervisor.core.turning import ASKS, DONE, TOOLS, result

SETTLES = (cm.FinishRun, cm.StopRun)


class ScriptedLine:
    """``special``: by message, what is answered instead; ``wait_ms``: what a model call has."""

    def __init__(self, remaining_ms: int = 60_000, **special: Callable[[Any], Any]) -> None:
        self.asked: list[cm.Request] = []
        self.remaining_ms, self._special = remaining_ms, special
        self.events: list[Event] = []
        self._grown = trio.Event()
        self._over = trio.Event()
        self.stop: StopRecord | None = None
        self.open = 0

    def names(self) -> list[str]:
        """What was asked, without what every round asks."""
        dull = (cm.WaitRun, cm.ListApprovals, cm.ListEffects, cm.KeepNotes)
        return [type(one).__name__ for one in self.asked if not isinstance(one, dull)]

    def of(self, kind: type) -> list[Any]:
        """What was asked of one kind."""
        return [one for one in self.asked if isinstance(one, kind)]

    def settle(self, stop: StopRecord) -> None:
        """The run has stopped for good."""
        self.stop = stop
        self.tell("run_settled")
        self._over.set()

    def tell(self, kind: str, call: str | None = None, **data: Any) -> None:
        """An event of the run."""
        self.events.append(Event(len(self.events) + 1, 0, kind, call, "r", 7, data, ""))
        self._grown.set()
        self._grown = trio.Event()

    def send(self, request: cm.Request) -> cm.Request:
        self.asked.append(request)
        return request

    async def answer(self, asked: Any) -> Any:
        self.open += 1
        try:
            special = self._special.get(type(asked).__name__)
            said = special(asked) if special is not None else await self._usual(asked)
            if hasattr(said, "__await__"):
                said = await said
            await trio.lowlevel.checkpoint()
            return said
        finally:
            self.open -= 1

    async def _usual(self, asked: Any) -> Any:
        match asked:
            case cm.WaitRun():
                await self._over.wait()
                assert self.stop is not None
                return cm.RunSettled(0, self.stop)
            case cm.ListApprovals():
                return cm.Approvals(0, [])
            case cm.ListEffects():
                return cm.Effects(0, [])
            case cm.ReserveModel():
                return cm.ModelReserved(0, "r", len(self.of(cm.ReserveModel)), self.remaining_ms)
            case cm.Submit():
                return cm.Settled(0, result(asked.tool, name=f"c_{len(self.of(cm.Submit))}"))
            case cm.FinishRun() | cm.StopRun():
                self.settle(DONE)
                return cm.RunSettled(0, DONE)
            case cm.AskPerson():
                self.tell("run_suspended")
                return cm.RunSettled(0, ASKS)
            case cm.ReadEvents():
                return await self._read(asked)
            case _:
                return cm.RunState(0, None)  # type: ignore[arg-type]  # nobody looks at it

    async def _read(self, asked: cm.ReadEvents) -> cm.Events:
        with trio.move_on_after((asked.wait_ms or 0) / 1_000):
            while len(self.events) <= asked.after:
                await self._grown.wait()
        page = self.events[asked.after : asked.after + asked.limit]
        return cm.Events(0, page, asked.after + len(page))


class ScriptedModel:
    """Each turn is a list of events, a failure, or a function that is awaited."""

    model = "scripted"

    def __init__(self, *turns: Any) -> None:
        self.turns = list(turns)
        self.asked: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        self.asked.append(request)
        turn = self.turns.pop(0)
        try:
            if isinstance(turn, ProviderFailure):
                raise ModelError(turn)
            if isinstance(turn, Exception):
                raise turn
            for event in turn if isinstance(turn, list) else await turn():
                await trio.lowlevel.checkpoint()
                yield event
        finally:
            self.closed += 1

    async def aclose(self) -> None: ...


def says(*calls: ToolCall, text: str = "", usage: Usage | None = None) -> list[ModelEvent]:
    """A whole turn."""
    return [
        *([Text(text)] if text else []),
        *calls,
        *([] if usage is None else [usage]),
        Stop("tools" if calls else "end"),
    ]


def agent_of(line: ScriptedLine, model: Any, **more: Any) -> Agent:
    """Ready to steer."""
    conversation = Conversation("Be careful.")
    conversation.said_by_user("mend it")
    machine = TurnMachine(conversation, OwnTools("mend it", TOOLS), Terms())
    return Agent(line, model, "r", machine, Pins("mend it"), draw=lambda: 0.0, **more)
