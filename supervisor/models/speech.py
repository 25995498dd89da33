"""What the protocols have in common: a dialect makes a request, and reads one answer event by event. Pure.

A reading is strict: what has no place in its protocol breaks the turn. It says `Stop` once, as the last thing, and only
when the provider has said all of it; a stream that ends before is cut, and nothing of it counts.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from supervisor.core.model_events import ModelError, ModelEvent, Request, Stop, StopReason, Usage
from supervisor.core.provider_failures import FailureKind
from supervisor.models.draft import Draft
from supervisor.models.failures import broken
from supervisor.models.server_sent import ServerEvent

Shape = TypeVar("Shape")
Tokens = Annotated[int, msgspec.Meta(ge=0)]
_BY_WHAT_WAS_SAID = ("end", "tools")


class Cached(msgspec.Struct):
    """How the two protocols of OpenAI tell what of the input was read from a cache."""

    cached_tokens: Tokens | None = None


class Reading(Protocol):
    """One answer as it comes in."""

    def take(self, event: ServerEvent) -> list[ModelEvent]:
        """What an event says. Raises ModelError for an error that it reports, and for what is not of the protocol."""

    def close(self) -> list[ModelEvent]:
        """The body has ended as it should have: what is left to say, `Stop` with it. Raises ModelError when the turn
        is not complete."""


class Dialect(Protocol):
    """One protocol. ``path``: below the base address."""

    path: str

    def headers(self, key: str | None) -> dict[str, str]:
        """Those of its own, the key among them."""

    def body(self, request: Request, model: str) -> dict[str, Any]:
        """A streaming request. ``request`` is sendable (`well_formed`)."""

    def read(self, request: Request) -> Reading:
        """The reading of its answer."""


def bearer(key: str | None) -> dict[str, str]:
    """The header of a bearer's key, where there is one."""
    return {} if key is None else {"authorization": f"Bearer {key}"}


def loaded(data: str) -> dict[str, Any]:
    """The object that an event is. Raises ModelError: a text that is none was cut by somebody on the way."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise broken(FailureKind.CUT_STREAM, "an event of the stream is no JSON") from error
    if not isinstance(value, dict):
        raise broken(FailureKind.CUT_STREAM, "an event of the stream is no object")
    return value


def shaped(value: Any, shape: type[Shape]) -> Shape:
    """A JSON value as a struct. Raises ModelError: it is not of the protocol."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise broken(FailureKind.CUT_STREAM, f"an event of the stream is not of its protocol: {error}") from error


def out_of_place(what: str) -> ModelError:
    """An event that may not come now."""
    return broken(FailureKind.CUT_STREAM, f"the stream is out of order: {what}")


def cut(anything: bool) -> ModelError:
    """The stream ended before the turn did. ``anything``: whether there was any event."""
    if not anything:
        return broken(FailureKind.EMPTY_STREAM, "the stream ended without a word")
    return broken(FailureKind.CUT_STREAM, "the stream ended in the middle of the turn")


def finished(draft: Draft, usage: Usage | None, reason: StopReason, word: str) -> list[ModelEvent]:
    """The end of a turn: the rest of its text, its calls, what it used, and why it stopped.

    Whether it ends or waits for tools is seen by its calls, and not by the word: routers change that. Raises
    ModelError for a turn that has ended without a word.
    """
    last = draft.rest()
    if reason in _BY_WHAT_WAS_SAID:
        if not draft.said_anything and not draft.has_calls:
            raise broken(FailureKind.NO_OUTPUT, "the model ended its turn without a word")
        reason = "tools" if draft.has_calls else "end"
    return [*last, *draft.calls(), *([] if usage is None else [usage]), Stop(reason, word)]
