"""The chat completions of OpenAI, as many others speak them too. Pure.

Rules
1. A turn is complete at ``[DONE]``, or when the body ends (some servers leave ``[DONE]`` out): after a finish reason,
   and never without one.
2. A fragment of a call belongs to the call of its index; an id that is not that call's begins another one there.
3. Finish reasons are words: whether there are calls, and whether they are whole, is seen by looking at them.
4. An error stands under ``error``, or is the whole of an event that is called so: servers differ.
5. ``usage`` is asked for; it comes last, after the finish reason, and the last one counts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from supervisor.core.model_events import Message, ModelError, ModelEvent, Request, StopReason, ToolSpec, Usage
from supervisor.models import failures
from supervisor.models.draft import Draft, Piecewise
from supervisor.models.server_sent import ServerEvent
from supervisor.models.speech import Cached, Tokens, bearer, cut, finished, loaded, shaped

DONE = "[DONE]"
_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "content_filter": "content_policy",
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Fragment(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Fragment] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Used(msgspec.Struct):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0
    prompt_tokens_details: Cached | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Used | None = None


class ChatCompletions:
    """``limit``: the field that bounds the output. OpenAI's own models want ``max_completion_tokens``; other servers
    may not know that one, and would leave the output without a bound."""

    path = "/chat/completions"

    def __init__(self, limit: str = "max_tokens") -> None:
        self._limit = limit

    def headers(self, key: str | None) -> dict[str, str]:
        """As `Dialect.headers`."""
        return bearer(key)

    def body(self, request: Request, model: str) -> dict[str, Any]:
        """As `Dialect.body`."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [_message(message) for message in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            self._limit: request.max_out,
        }
        return body | ({"tools": [_tool(tool) for tool in request.tools]} if request.tools else {})

    def read(self, request: Request) -> _ChatReading:
        """As `Dialect.read`."""
        return _ChatReading(Draft(request))


class _ChatReading:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._open: dict[int, Piecewise] = {}
        self._word: str | None = None
        self._used: Usage | None = None
        self._anything = False

    def take(self, event: ServerEvent) -> list[ModelEvent]:
        if event.data.strip() == DONE:
            return self._end()
        value = loaded(event.data)
        if error := value.get("error") or (value if "error" in (event.name, value.get("object")) else None):
            raise ModelError(failures.of_stream(error))
        chunk = shaped(value, _Chunk)
        self._anything = True
        if chunk.usage is not None:
            self._used = _usage(chunk.usage)
        return self._choice(chunk.choices[0]) if chunk.choices else []

    def close(self) -> list[ModelEvent]:
        return self._end()

    def _choice(self, choice: _Choice) -> list[ModelEvent]:
        delta = choice.delta or _Delta()
        for fragment in delta.tool_calls or ():
            self._fragment(fragment)
        self._word = choice.finish_reason or self._word
        return [*self._draft.say((delta.content or "") + (delta.refusal or ""))]

    def _fragment(self, fragment: _Fragment) -> None:
        """Rule 2."""
        call = self._open.get(fragment.index)
        if call is None or (fragment.id and call.id and fragment.id != call.id):
            call = self._open[fragment.index] = self._draft.begin()
        call.id = call.id or fragment.id or ""
        function = fragment.function or _Function()
        call.name = call.name or function.name or ""
        call.pieces.append(function.arguments or "")

    def _end(self) -> list[ModelEvent]:
        if self._word is None:
            raise cut(self._anything)
        return finished(self._draft, self._used, _REASONS.get(self._word, "other"), self._word)


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers or "", "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _usage(used: _Used) -> Usage:
    cached = (used.prompt_tokens_details or Cached()).cached_tokens or 0
    return Usage(used.prompt_tokens, used.completion_tokens, cached)
