"""The Messages of Anthropic. Pure.

Rules
1. A turn is ``message_start``, then blocks one after the other or side by side, each opened before it grows and closed
   before the end, then ``message_stop``, which alone completes it. ``ping`` may come at any time; events and blocks of
   kinds that are not known here (there will be more) are left out.
2. A block of a call that never grew has the input that it was opened with.
3. ``input_tokens`` leaves out what was read from a cache and written to it; ours do not.
4. The conversation alternates and begins with the user: neighbours of one role are one message, results are the
   user's, the system's words stand apart. Tools that the history names must be declared also where none may be called.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from supervisor.core.model_events import Message, ModelError, ModelEvent, Request, StopReason, ToolSpec, Usage
from supervisor.models import failures, well_formed
from supervisor.models.draft import Draft, Piecewise
from supervisor.models.server_sent import ServerEvent
from supervisor.models.speech import Tokens, cut, finished, loaded, out_of_place, shaped

VERSION = "2023-06-01"
_BEGIN = "(The beginning of the conversation was left out.)"
_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_policy",
}


class _Used(msgspec.Struct):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None


class _MessageStart(msgspec.Struct):
    usage: _Used | None = None


class _Block(msgspec.Struct):
    type: str
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    text: str | None = None


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int | None = None
    message: _MessageStart | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Used | None = None


class AnthropicMessages:
    """As `Dialect`."""

    path = "/messages"

    def headers(self, key: str | None) -> dict[str, str]:
        """The key in a header of its own, and the version of the protocol."""
        return {"anthropic-version": VERSION} | ({} if key is None else {"x-api-key": key})

    def body(self, request: Request, model: str) -> dict[str, Any]:
        """As `Dialect.body`."""
        said = [message for message in request.messages if message.role != "system"]
        system = "\n\n".join(message.text for message in request.messages if message.role == "system" and message.text)
        body: dict[str, Any] = {"model": model, "max_tokens": request.max_out, "stream": True}
        return body | ({"system": system} if system else {}) | {"messages": _alternating(said)} | _tools(request)

    def read(self, request: Request) -> _MessagesReading:
        """As `Dialect.read`."""
        return _MessagesReading(Draft(request))


class _MessagesReading:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._blocks: dict[int, tuple[_Block, Piecewise | None]] = {}
        self._used, self._reported = _Used(), False
        self._started, self._word = False, ""

    def take(self, event: ServerEvent) -> list[ModelEvent]:
        value = loaded(event.data)
        if value.get("type") == "error":
            raise ModelError(failures.of_stream(value.get("error")))
        said = shaped(value, _Event)
        if not self._started and said.type not in ("message_start", "ping"):
            raise out_of_place(f"{said.type} before message_start")
        match said.type:
            case "message_start":
                return self._start(said)
            case "content_block_start":
                return self._open(said)
            case "content_block_delta":
                return self._grow(said)
            case "content_block_stop":
                return self._shut(said)
            case "message_delta":
                return self._report(said)
            case "message_stop":
                return self._end()
            case _:
                return []

    def close(self) -> list[ModelEvent]:
        raise cut(self._started)

    def _start(self, said: _Event) -> list[ModelEvent]:
        if self._started:
            raise out_of_place("message_start twice")
        self._started = True
        self._use((said.message or _MessageStart()).usage or _Used())
        return []

    def _open(self, said: _Event) -> list[ModelEvent]:
        block, index = said.content_block, said.index
        if block is None or index is None or index in self._blocks:
            raise out_of_place("content_block_start without a block of its own")
        call = self._draft.begin(block.id, block.name) if block.type == "tool_use" else None
        self._blocks[index] = (block, call)
        return [*self._draft.say(block.text or "")] if block.type == "text" else []

    def _grow(self, said: _Event) -> list[ModelEvent]:
        block, call = self._block(said)
        delta = said.delta or _Delta()
        if call is not None:
            call.pieces.append(delta.partial_json or "")
        return [*self._draft.say(delta.text or "")] if block.type == "text" else []

    def _shut(self, said: _Event) -> list[ModelEvent]:
        block, call = self._block(said)
        if call is not None and not any(call.pieces):
            call.pieces.append(json.dumps(block.input or {}))
        del self._blocks[said.index or 0]
        return []

    def _block(self, said: _Event) -> tuple[_Block, Piecewise | None]:
        if said.index is None or said.index not in self._blocks:
            raise out_of_place(f"{said.type} for a block that is not open")
        return self._blocks[said.index]

    def _report(self, said: _Event) -> list[ModelEvent]:
        self._word = (said.delta or _Delta()).stop_reason or self._word
        self._use(said.usage or _Used())
        return []

    def _use(self, used: _Used) -> None:
        """What is reported later stands for what was reported before; what is not, stays."""
        for name in used.__struct_fields__:
            if (tokens := getattr(used, name)) is not None:
                setattr(self._used, name, tokens)
                self._reported = True

    def _end(self) -> list[ModelEvent]:
        if self._blocks or not self._word:
            raise out_of_place("message_stop before the end of a block, or without a reason")
        usage = _usage(self._used) if self._reported else None
        return finished(self._draft, usage, _REASONS.get(self._word, "other"), self._word)


def _usage(used: _Used) -> Usage:
    cached, written = used.cache_read_input_tokens or 0, used.cache_creation_input_tokens or 0
    plain, out = used.input_tokens or 0, used.output_tokens or 0
    return Usage(plain + written + cached, out, cached)


def _tools(request: Request) -> dict[str, Any]:
    """Rule 4."""
    if request.tools:
        return {"tools": [_tool(tool) for tool in request.tools]}
    named = dict.fromkeys(call.name for message in request.messages for call in message.calls)
    if not named:
        return {}
    specs = [ToolSpec(name, "Not to be called.", {"type": "object"}) for name in named]
    return {"tools": [_tool(tool) for tool in specs], "tool_choice": {"type": "none"}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _alternating(messages: Iterable[Message]) -> list[dict[str, Any]]:
    joined: list[dict[str, Any]] = []
    for message in messages:
        role, blocks = "assistant" if message.role == "assistant" else "user", _blocks(message)
        if joined and joined[-1]["role"] == role:
            joined[-1]["content"] += blocks
        elif blocks:
            joined.append({"role": role, "content": blocks})
    if not joined or joined[0]["role"] != "user":
        joined.insert(0, {"role": "user", "content": [{"type": "text", "text": _BEGIN}]})
    return joined


def _blocks(message: Message) -> list[dict[str, Any]]:
    """Its blocks; a text that is empty, or white space alone, is none: it would be refused."""
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.answers or "", "content": message.text}]
    said = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return [*said, *({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
                     for call in message.calls)]  # fmt: skip


def _input(arguments: str) -> dict[str, Any]:
    return well_formed.as_object(arguments) or {}
