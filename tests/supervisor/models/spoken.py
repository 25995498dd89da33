"""What providers say, as bytes: one turn with a text and two calls of a tool, in each protocol."""

from __future__ import annotations

import json
from typing import Any

from supervisor.core.model_events import Message, Request, ToolCall, ToolSpec
from supervisor.models.anthropic_messages import AnthropicMessages
from supervisor.models.chat_completions import ChatCompletions
from supervisor.models.responses import Responses
from supervisor.models.speech import Dialect

ARGUMENTS = '{"file":"/tmp/f","text":"first half of \\u00e4 \\" ["}'
CALLS = [ToolCall("c1", "save", ARGUMENTS), ToolCall("c2", "list", "{}")]
TOOL = ToolSpec("save", "Write a file.", {"type": "object", "properties": {"file": {"type": "string"}}})
REQUEST = Request([Message("system", "be brief"), Message("user", "go")], [TOOL], 100)
HISTORY = Request(
    [
        Message("system", "be brief"),
        Message("user", "go"),
        Message("assistant", "I look", (ToolCall("c1", "save", '{"a": 1}'), ToolCall("c2", "", '{"a": '))),
        Message("tool", "done", answers="c1"),
        Message("tool", "broken", answers="c2"),
    ],
)


def server_event(value: Any, name: str = "") -> bytes:
    data = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None and finish is None else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return server_event({"object": "chat.completion.chunk", "choices": choices, **more})


def chat(finish: str | None = "tool_calls", arguments: str = ARGUMENTS, done: bool = True) -> bytes:
    half = len(arguments) // 2
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "save", "arguments": ""}}
    other = {"index": 1, "id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in (arguments[:half], arguments[half:])]
    usage = {"prompt_tokens": 70, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}}
    return b"".join(
        [
            chunk({"role": "assistant", "content": "He"}),
            chunk({"content": "llo"}),
            chunk({"tool_calls": [first]}),
            *(chunk({"tool_calls": [piece]}) for piece in pieces),
            chunk({"tool_calls": [other]}),
            chunk({}, finish) if finish else b"",
            chunk(usage=usage),
            server_event("[DONE]") if done else b"",
        ]
    )


def messages(stop: str = "tool_use", arguments: str = ARGUMENTS) -> bytes:
    half = len(arguments) // 2
    said: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "usage": {
                    "input_tokens": 4,
                    "cache_read_input_tokens": 64,
                    "cache_creation_input_tokens": 2,
                    "output_tokens": 1,
                }
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "c1", "name": "save", "input": {}},
        },
        *(
            {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in ("", arguments[:half], arguments[half:])
        ),
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "c2", "name": "list", "input": {}},
        },
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(server_event(one, one["type"]) for one in said)


def responses(arguments: str = ARGUMENTS, last: str = "completed", why: str | None = None) -> bytes:
    calls = [
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "save", "arguments": arguments},
        {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "list", "arguments": "{}"},
    ]
    text = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
    usage = {"input_tokens": 70, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 64}}
    whole = {"status": last, "output": [text, *calls], "usage": usage, "incomplete_details": why and {"reason": why}}
    said: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**text, "content": []}},
        {"type": "response.output_text.delta", "delta": "He"},
        {"type": "response.output_text.delta", "delta": "llo"},
        {"type": "response.output_item.done", "output_index": 0, "item": text},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": arguments[:7]},
        *({"type": "response.output_item.done", "output_index": at, "item": call} for at, call in enumerate(calls, 1)),
        {"type": f"response.{last}", "response": whole},
    ]
    return b"".join(server_event(one, one["type"]) for one in said)


DIALECTS: dict[str, tuple[Dialect, bytes]] = {
    "chat": (ChatCompletions(), chat()),
    "messages": (AnthropicMessages(), messages()),
    "responses": (Responses(), responses()),
}
"""Each with the same turn said in it."""
