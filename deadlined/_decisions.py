"""A decision function of the user's own, in the place of a model: what it may return, and how it becomes a turn."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import trio

from supervisor.core.model_events import ModelEvent, Request, Stop, Text, ToolCall, Usage


class Turn(msgspec.Struct, frozen=True):
    """What was decided. ``calls`` empty: ``text`` is the answer. Tokens: what it has cost, where that is known."""

    text: str = ""
    calls: Sequence[ToolCall] = ()
    tokens_in: int = 0
    tokens_out: int = 0


Decision: TypeAlias = Turn | ToolCall | Sequence[ToolCall] | str
Decide: TypeAlias = Callable[[Request], Decision | Awaitable[Decision]]


def call(tool: str, **arguments: Any) -> ToolCall:
    """A call of ``tool``, for a decision function to return. Raises what ``json`` does for what it cannot carry."""
    return ToolCall("", tool, json.dumps(arguments, allow_nan=False, ensure_ascii=False))


class FunctionGateway:
    """A decision function as a model. A plain function runs in a thread: at the deadline nobody waits for it any more,
    and nothing can end it. An asynchronous one is cancelled."""

    def __init__(self, decide: Decide, model: str = "function") -> None:
        self._decide, self.model = decide, model

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """One decision. What the function raises is raised."""
        turn = _whole(_turn(await self._decided(request)))
        if turn.text:
            yield Text(turn.text)
        for number, one in enumerate(turn.calls):
            yield ToolCall(one.id or f"call_{number}", one.name, one.arguments)
        yield Usage(turn.tokens_in, turn.tokens_out)
        yield Stop("tools" if turn.calls else "end")

    async def _decided(self, request: Request) -> Decision:
        if inspect.iscoroutinefunction(self._decide):
            decided: Decision = await self._decide(request)
            return decided
        # in a list: what is called may turn out to be asynchronous, and Trio takes no coroutine from a thread
        (said,) = await trio.to_thread.run_sync(lambda: [self._decide(request)], abandon_on_cancel=True)
        return await said if inspect.isawaitable(said) else said

    async def aclose(self) -> None:
        """There is nothing to give up."""


def _turn(said: Decision) -> Turn:
    match said:
        case Turn():
            return said
        case str():
            return Turn(said)
        case ToolCall():
            return Turn(calls=(said,))
        case list() | tuple():
            return Turn(calls=tuple(said))
    raise TypeError(f"a decision is a str, a call, calls or a Turn, and not {type(said).__name__}")


def _whole(turn: Turn) -> Turn:
    """The same turn, if it is what its types say: everybody behind this relies on them. Raises TypeError."""
    try:
        return msgspec.convert(msgspec.to_builtins(turn), Turn)
    except (msgspec.ValidationError, TypeError) as error:
        raise TypeError(f"a decision has other types than it may have: {error}; `call` makes a call") from error
