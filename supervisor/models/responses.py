"""The Responses of OpenAI. Pure.

Rules
1. A turn is complete with ``response.completed`` or ``response.incomplete``, and with nothing else.
2. Text comes in deltas; a call is taken when its item is done, from the item itself. Of texts or calls that were not
   told before, what the last event lists is told: some servers tell everything there.
3. Nothing is stored with the provider: each request has the whole conversation.
4. Events of kinds that are not known here are left out; there are many, and there will be more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from supervisor.core.model_events import Message, ModelError, ModelEvent, Request, StopReason, ToolSpec, Usage
from supervisor.models import failures
from supervisor.models.draft import Draft
from supervisor.models.server_sent import ServerEvent
from supervisor.models.speech import Cached, Tokens, bearer, cut, finished, loaded, shaped

_LEAST_OUT = 16
"""The protocol refuses less."""
_TEXT_DELTAS = ("response.output_text.delta", "response.refusal.delta")
_WHY_INCOMPLETE: dict[str, StopReason] = {
    "": "length",
    "max_output_tokens": "length",
    "content_filter": "content_policy",
}
"""Some say that they are incomplete and not why, or say so in an event that is called completed."""


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[_Part] | None = None


class _Used(msgspec.Struct):
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    input_tokens_details: Cached | None = None


class _Why(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[_Item] | None = None
    usage: _Used | None = None
    incomplete_details: _Why | None = None
    error: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    type: str
    delta: str | None = None
    item: _Item | None = None
    response: _Response | None = None


class Responses:
    """As `Dialect`."""

    path = "/responses"

    def headers(self, key: str | None) -> dict[str, str]:
        """As `Dialect.headers`."""
        return bearer(key)

    def body(self, request: Request, model: str) -> dict[str, Any]:
        """As `Dialect.body`."""
        body: dict[str, Any] = {
            "model": model,
            "input": [item for message in request.messages for item in _items(message)],
            "stream": True,
            "store": False,
            "max_output_tokens": max(_LEAST_OUT, request.max_out),
        }
        return body | ({"tools": [_tool(tool) for tool in request.tools]} if request.tools else {})

    def read(self, request: Request) -> _ResponsesReading:
        """As `Dialect.read`."""
        return _ResponsesReading(Draft(request))


class _ResponsesReading:
    def __init__(self, draft: Draft) -> None:
        self._draft, self._anything = draft, False

    def take(self, event: ServerEvent) -> list[ModelEvent]:
        value = loaded(event.data)
        kind = value.get("type")
        if kind == "error":
            raise ModelError(failures.of_stream(value.get("error") or value))
        self._anything = True
        if kind not in _KNOWN:
            return []
        said = shaped(value, _Event)
        if said.type in _TEXT_DELTAS:
            return [*self._draft.say(said.delta or "")]
        if said.type == "response.output_item.done":
            self._call(said.item)
            return []
        return self._end(said.type, said.response or _Response())

    def close(self) -> list[ModelEvent]:
        raise cut(self._anything)

    def _call(self, item: _Item | None) -> None:
        if item is not None and item.type == "function_call":
            self._draft.begin(item.call_id, item.name).pieces.append(item.arguments or "")

    def _end(self, kind: str, response: _Response) -> list[ModelEvent]:
        if kind == "response.failed":
            raise ModelError(failures.of_stream(response.error))
        said = [] if self._draft.said_anything else self._draft.say(_text_of(response.output or ()))
        for item in () if self._draft.has_calls else response.output or ():
            self._call(item)
        why = (response.incomplete_details or _Why()).reason or ""
        whole = kind == "response.completed" and response.status != "incomplete" and not why
        reason = "end" if whole else _WHY_INCOMPLETE.get(why, "other")
        return [*said, *finished(self._draft, _usage(response.usage), reason, why or response.status or "")]


_KNOWN = (*_TEXT_DELTAS, "response.output_item.done", "response.completed", "response.incomplete", "response.failed")


def _text_of(items: Iterable[_Item]) -> str:
    return "".join((part.text or "") + (part.refusal or "") for item in items if item.type == "message"
                   for part in item.content or ())  # fmt: skip


def _usage(used: _Used | None) -> Usage | None:
    if used is None:
        return None
    cached = (used.input_tokens_details or Cached()).cached_tokens or 0
    return Usage(used.input_tokens, used.output_tokens, cached)


def _items(message: Message) -> Iterable[dict[str, Any]]:
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.answers or "", "output": message.text}
        return
    if message.text or not message.calls:
        yield {"role": message.role, "content": message.text}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "strict": False, **function}
