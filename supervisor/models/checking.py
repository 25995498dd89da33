"""Whether an upstream keeps to what a loop needs of it, found out by asking it: the compatibility tests behind
``deadlined models check``. Owns what is asked and what is good enough; speaks through gateways like everybody else.

Each check is one conversation, bounded in time. One that needs what a model has not (a script has no key) is skipped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec
import trio

from protocol._contracts import Contract, ToolDescription
from protocol._errors import InvalidArguments
from protocol._outcomes import ErrorClass
from supervisor.core import arguments
from supervisor.core.model_events import (
    Gateway,
    Message,
    ModelError,
    ModelEvent,
    Request,
    Stop,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
)
from supervisor.core.provider_failures import FailureKind, class_of
from supervisor.core.schemas import ArgumentSchema
from supervisor.environment import MODEL_KEY
from supervisor.models.choosing import SCRIPTED, gateway, parts

PATIENCE_S = 60.0
HELLO = "Reply with the single word: hello."
COUNT = "Count from 1 to 500 in words, one number a line."
CALL = "Call the tool echo with the word deadline. Say nothing else."
ECHO = ToolSpec(
    "echo",
    "Says a word back.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"], "additionalProperties": False},
)
_ECHO_SCHEMA = ArgumentSchema(ToolDescription(ECHO.name, ECHO.description, Contract(), ECHO.schema))
WRONG_KEY, NO_MODEL = "deadlined-wrong-key", "deadlined-no-such-model"
CONTEXT_WORDS = 2_000_000
_SHORT, _LONG = 16, 1_024


class Check(msgspec.Struct, frozen=True):
    """``detail``: what was seen, for people."""

    name: str
    result: Literal["ok", "failed", "skipped"]
    detail: str


class _UnfitError(Exception):
    """It does not keep to it; the text says in which way."""


async def check(
    name: str | None, environment: Mapping[str, str], skip: Sequence[str] = (), patience_s: float = PATIENCE_S
) -> list[Check]:
    """All checks of one model, in their order; ``skip``: those that are left out. Raises GatewayError when there is no
    such model."""
    model = gateway(name, environment)
    await model.aclose()
    return [await _judged(one, name, environment, one.__name__ in skip, patience_s) for one in CHECKS]


async def _judged(one: _Asked, name: str | None, given: Mapping[str, str], skip: bool, patience_s: float) -> Check:
    word = one.__name__
    if skip:
        return Check(word, "skipped", "left out")
    if (reason := _needs(one, name, given)) is not None:
        return Check(word, "skipped", reason)
    try:
        with trio.fail_after(patience_s):
            return Check(word, "ok", await one(name, given))
    except _UnfitError as error:
        return Check(word, "failed", str(error))
    except ModelError as error:
        return Check(word, "failed", _said(error))
    except trio.TooSlowError:
        return Check(word, "failed", f"no end after {patience_s:g} s")


def _needs(one: _Asked, name: str | None, given: Mapping[str, str]) -> str | None:
    """Why a check cannot be made of this model; None: it can."""
    if one in _OF_UPSTREAMS and parts(name, given)[0] == SCRIPTED:
        return "a script has no upstream"
    return f"no {MODEL_KEY} is set" if one is key and not given.get(MODEL_KEY) else None


# ---------------------------------------------------------------- the checks, by the names that people see


async def key(name: str | None, given: Mapping[str, str]) -> str:
    """A wrong key is refused as one."""
    error = await _refusal(gateway(name, {**given, MODEL_KEY: WRONG_KEY}), _asked(HELLO))
    if class_of(error.failure) is not ErrorClass.AUTH:
        raise _UnfitError(f"a wrong key is answered by something else: {_said(error)}")
    return f"a wrong key is refused: {_said(error)}"


async def stream(name: str | None, given: Mapping[str, str]) -> str:
    """Text comes as events, and a stop comes last."""
    events = await _events(gateway(name, given), _asked(HELLO))
    pieces = [event for event in events if isinstance(event, Text)]
    if not pieces:
        raise _UnfitError("a question gets no text")
    return f"{len(pieces)} pieces of text, then {_stop(events)}"


async def usage(name: str | None, given: Mapping[str, str]) -> str:
    """What was used is reported."""
    reports = [event for event in await _events(gateway(name, given), _asked(HELLO)) if isinstance(event, Usage)]
    if not reports or not reports[-1].tokens_in or not reports[-1].tokens_out:
        raise _UnfitError("no usage is reported: each call of this model would be charged what was reserved for it")
    return f"{reports[-1].tokens_in} tokens in, {reports[-1].tokens_out} out"


async def length(name: str | None, given: Mapping[str, str]) -> str:
    """An answer that is cut for its length says so."""
    events = await _events(gateway(name, given), _asked(COUNT, max_out=_SHORT))
    if (reason := _stop(events)) != "length":
        raise _UnfitError(f"an answer of more than {_SHORT} tokens ends with {reason}")
    return "an answer that is too long ends with length"


async def tool_call(name: str | None, given: Mapping[str, str]) -> str:
    """A call of a tool has an id, a name and arguments that are whole."""
    call = await _call(gateway(name, given))
    return f"{call.name} {call.arguments}, id {call.id}"


async def tool_result(name: str | None, given: Mapping[str, str]) -> str:
    """A conversation with a call and its result is taken, and goes on."""
    model = gateway(name, given)
    call = await _call(model)
    history = [Message("user", CALL), Message("assistant", "", (call,)), Message("tool", "deadline", answers=call.id)]
    events = await _events(model, Request(history, [ECHO], _LONG))
    return f"a result is taken; then {_stop(events)}"


async def errors(name: str | None, given: Mapping[str, str]) -> str:
    """A model that is not there is refused by a status that says so."""
    provider, _ = parts(name, given)
    error = await _refusal(gateway(f"{provider}:{NO_MODEL}", given), _asked(HELLO))
    return _for_good(error, "a model that is not there")


async def context(name: str | None, given: Mapping[str, str]) -> str:
    """A request beyond every context is refused, and not cut in silence."""
    error = await _refusal(gateway(name, given), _asked("word " * CONTEXT_WORDS, max_out=_SHORT))
    return _for_good(error, f"a request of {CONTEXT_WORDS} words")


_Asked = Callable[[str | None, Mapping[str, str]], Awaitable[str]]
CHECKS: tuple[_Asked, ...] = (key, stream, usage, length, tool_call, tool_result, errors, context)
NAMES = tuple(one.__name__ for one in CHECKS)
_OF_UPSTREAMS = (key, errors, context)


# ---------------------------------------------------------------- what they are made of


def _asked(words: str, max_out: int = _LONG) -> Request:
    return Request([Message("user", words)], (), max_out)


async def _events(model: Gateway, request: Request) -> list[ModelEvent]:
    try:
        async with aclosing(model.stream(request)) as events:
            return [event async for event in events]
    finally:
        with trio.CancelScope(shield=True):
            await model.aclose()


async def _refusal(model: Gateway, request: Request) -> ModelError:
    try:
        events = await _events(model, request)
    except ModelError as error:
        return error
    raise _UnfitError(f"it was answered, with {_stop(events)}")


async def _call(model: Gateway) -> ToolCall:
    events = await _events(model, Request([Message("user", CALL)], [ECHO], _LONG))
    calls = [event for event in events if isinstance(event, ToolCall)]
    if not calls or calls[0].name != ECHO.name:
        raise _UnfitError(f"the tool was not called; the turn ends with {_stop(events)}")
    try:
        _ECHO_SCHEMA.check(arguments.parse(calls[0].arguments).values)
    except InvalidArguments as error:
        raise _UnfitError(f"the arguments of a call are not taken: {error}") from error
    return calls[0]


def _for_good(error: ModelError, what: str) -> str:
    failure = error.failure
    if failure.kind is not FailureKind.HTTP_STATUS or class_of(failure) is ErrorClass.TRANSIENT_PROVIDER:
        raise _UnfitError(f"{what} is answered as if it might pass: {_said(error)}")
    return f"{what} is refused: {_said(error)}"


def _stop(events: Sequence[ModelEvent]) -> str:
    return events[-1].reason if events and isinstance(events[-1], Stop) else "nothing"


def _said(error: ModelError) -> str:
    failure = error.failure
    return f"{failure.kind}{f' {failure.status}' * (failure.status is not None)} ({failure.message})"
