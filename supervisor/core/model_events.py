"""What is said to a model and what it says, whoever provides it: the narrow interface that the loop depends on.

A gateway turns a `Request` into events, in their order: text, calls of tools, what was used, and at last why it ended.
Without a `Stop` the turn is incomplete, whatever came before, and nothing of it is used.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from supervisor.core.provider_failures import ProviderFailure

StopReason = Literal["end", "tools", "length", "content_policy", "other"]
"""``end``: it has said what it had to say. ``tools``: it waits for what it called. ``length``: it was cut."""


class Text(msgspec.Struct, frozen=True, gc=False):
    """A piece of what is said; pieces follow each other."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A call of a tool, whole. ``id``: the provider's, or made by the gateway where it gives none; unique in its turn.
    ``arguments``: the text as it came, which may be no JSON at all: nobody repairs it here."""

    id: str
    name: str
    arguments: str


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of this turn so far, as the provider reports them; the last report counts. ``cached_in``: of
    ``tokens_in``, those that were read from a cache."""

    tokens_in: int
    tokens_out: int
    cached_in: int = 0


class Stop(msgspec.Struct, frozen=True, gc=False):
    """The turn is complete. ``said``: the provider's own word."""

    reason: StopReason
    said: str = ""


ModelEvent: TypeAlias = Text | ToolCall | Usage | Stop


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it. ``schema``: JSON schema of its arguments, an object."""

    name: str
    description: str
    schema: dict[str, Any]


class Message(msgspec.Struct, frozen=True):
    """One message. ``calls``: those that it asks for. ``answers``: the id of the call whose result it is. ``step``: of
    the run, where it belongs to one. ``pinned``: made by `context`, of its pins."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    step: int | None = None
    pinned: bool = False


class Request(msgspec.Struct, frozen=True):
    """One turn. ``tools`` empty: none may be called. ``max_out``: tokens."""

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_out: int = 4_096


class ModelError(Exception):
    """An attempt that failed, in typed facts."""

    def __init__(self, failure: ProviderFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@runtime_checkable
class Gateway(Protocol):
    """One model of one provider. ``model``: its name, under which it is priced."""

    model: str

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """The events of one attempt. Raises ModelError and nothing else that can be foreseen; never tries again.

        Cancelled (a deadline, somebody's wish) it closes what it opened; nothing goes on after that.
        """

    async def aclose(self) -> None:
        """Give up its connections."""
