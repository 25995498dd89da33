"""Requests as each protocol wants them, and what is particular to the answers of one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.model_events import Message, ModelError, Request, Stop, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind
from supervisor.models import well_formed
from supervisor.models.anthropic_messages import AnthropicMessages
from supervisor.models.chat_completions import ChatCompletions
from supervisor.models.responses import Responses
from supervisor.models.speech import Dialect
from tests.supervisor.models.spoken import HISTORY, REQUEST, TOOL, chunk, server_event
from tests.supervisor.models.test_speech import failure, read

CHAT, MESSAGES, RESPONSES = ChatCompletions(), AnthropicMessages(), Responses()
BROKEN = '{"malformed": "{\\"a\\": "}'


def body(dialect: Dialect, request: Request) -> Any:
    return json.loads(well_formed.body(dialect.body(well_formed.sendable(request), "m")))


def test_chat_completions_get_messages_with_their_calls_and_results():
    sent = body(CHAT, HISTORY)
    assert sent["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "save", "arguments": '{"a": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "unnamed", "arguments": BROKEN}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "broken"},
    ]
    assert (sent["stream"], sent["stream_options"], sent["max_tokens"]) == (True, {"include_usage": True}, 4096)
    assert "tools" not in sent


def test_responses_get_items_and_store_nothing():
    sent = body(RESPONSES, HISTORY)
    assert sent["input"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look"},
        {"type": "function_call", "call_id": "c1", "name": "save", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "unnamed", "arguments": BROKEN},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "function_call_output", "call_id": "c2", "output": "broken"},
    ]
    assert (sent["stream"], sent["store"], sent["max_output_tokens"]) == (True, False, 4096)


def test_messages_alternate_and_the_system_stands_apart():
    sent = body(MESSAGES, HISTORY)
    assert (sent["system"], sent["max_tokens"], sent["stream"]) == ("be brief", 4096, True)
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "c1", "name": "save", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "unnamed", "input": {"malformed": '{"a": '}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "done"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "broken"},
            ],
        },
    ]


def test_messages_begin_with_the_user_whatever_was_trimmed_and_have_no_empty_text():
    trimmed = Request([Message("assistant", " ", (ToolCall("c", "t", "{}"),)), Message("tool", "", answers="c")])
    sent = body(MESSAGES, trimmed)["messages"]
    assert [one["role"] for one in sent] == ["user", "assistant", "user"]
    assert [block["type"] for one in sent for block in one["content"]] == ["text", "tool_use", "tool_result"]


def test_tools_of_the_history_are_declared_to_messages_though_none_may_be_called():
    sent = body(MESSAGES, HISTORY)
    assert [tool["name"] for tool in sent["tools"]] == ["save", "unnamed"]
    assert sent["tool_choice"] == {"type": "none"}
    assert "tools" not in body(MESSAGES, Request([Message("user", "go")]))


def test_each_protocol_is_told_of_a_tool_in_its_words():
    assert body(CHAT, REQUEST)["tools"] == [
        {"type": "function", "function": {"name": "save", "description": TOOL.description, "parameters": TOOL.schema}}
    ]
    assert body(MESSAGES, REQUEST)["tools"] == [
        {"name": "save", "description": TOOL.description, "input_schema": TOOL.schema}
    ]
    assert body(RESPONSES, REQUEST)["tools"] == [
        {
            "type": "function",
            "strict": False,
            "name": "save",
            "description": TOOL.description,
            "parameters": TOOL.schema,
        }
    ]


# ---------------------------------------------------------------- chat completions


def fragment(index: int, said: str, given_id: str | None = None, name: str | None = None) -> bytes:
    one = {"index": index, "id": given_id, "function": {"name": name, "arguments": said}}
    return chunk({"tool_calls": [one]})


def test_fragments_of_calls_that_alternate_go_each_to_its_own():
    pieces = [
        fragment(0, "{", "a", "x"),
        fragment(1, "[", "b", "y"),
        fragment(0, "}"),
        fragment(1, "]"),
        chunk({}, "stop"),
    ]
    assert read(CHAT, *pieces)[:2] == [ToolCall("a", "x", "{}"), ToolCall("b", "y", "[]")]


def test_another_id_under_the_same_index_is_another_call():
    pieces = [fragment(0, "{}", "a", "x"), fragment(0, "{}", "b", "y"), chunk({}, "tool_calls")]
    assert read(CHAT, *pieces)[:2] == [ToolCall("a", "x", "{}"), ToolCall("b", "y", "{}")]


def test_a_body_may_end_after_the_finish_reason_without_a_last_word():
    assert read(CHAT, chunk({"content": "a"}), chunk({}, "stop")) == [Text("a"), Stop("end", "stop")]


def test_of_several_reports_the_last_one_counts():
    used = [chunk(usage={"prompt_tokens": 5, "completion_tokens": n}) for n in (1, 2, 3)]
    assert read(CHAT, chunk({"content": "a"}, "stop"), *used, server_event("[DONE]"))[1] == Usage(5, 3)


@pytest.mark.parametrize(
    "event",
    [
        server_event({"error": {"code": 400, "message": "m"}}),
        server_event({"object": "error", "code": 400, "message": "m"}),
        server_event({"code": 400, "message": "m"}, "error"),
    ],
)
def test_an_error_is_one_wherever_a_server_puts_it_and_no_cut_stream(event):
    with pytest.raises(ModelError) as raised:
        read(CHAT, chunk({"content": "a"}), event, server_event("[DONE]"))
    assert (raised.value.failure.status, raised.value.failure.message) == (400, "m")


def test_a_refusal_is_text_like_any_other():
    assert read(CHAT, chunk({"refusal": "no"}), chunk({}, "stop"))[0] == Text("no")


def test_a_length_that_leaves_no_word_is_a_turn_and_an_end_that_does_is_none():
    assert read(CHAT, chunk({}, "length")) == [Stop("length", "length")]
    assert failure(CHAT, chunk({}, "stop"), server_event("[DONE]")) is FailureKind.NO_OUTPUT


# ---------------------------------------------------------------- Anthropic Messages

START = {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}
BLOCK = {"type": "tool_use", "id": "a", "name": "t", "input": {"x": 1}}
OPEN = {"type": "content_block_start", "index": 0, "content_block": BLOCK}
GROW = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}}
SHUT = {"type": "content_block_stop", "index": 0}
LAST = [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]


@pytest.mark.parametrize(
    "events",
    [
        [OPEN, SHUT, *LAST],
        [START, START, OPEN, SHUT, *LAST],
        [START, GROW, *LAST],
        [START, SHUT, *LAST],
        [START, OPEN, OPEN, SHUT, *LAST],
        [START, OPEN, *LAST],
        [START, OPEN, SHUT, GROW, *LAST],
        [START, OPEN, SHUT, {"type": "message_stop"}],
        [START, {**OPEN, "content_block": None}, *LAST],
    ],
)
def test_what_is_out_of_order_breaks_the_turn(events):
    assert failure(MESSAGES, *map(server_event, events)) is FailureKind.CUT_STREAM


def test_a_block_that_never_grew_has_the_input_it_was_opened_with():
    assert read(MESSAGES, *map(server_event, [START, OPEN, SHUT, *LAST]))[0] == ToolCall("a", "t", '{"x": 1}')


def test_blocks_and_events_that_are_not_known_are_left_out():
    strange = [
        {"type": "never heard of", "x": 1},
        {"type": "content_block_start", "index": 7, "content_block": {"type": "thinking", "thinking": ""}},
        {
            "type": "content_block_delta",
            "index": 7,
            "delta": {"type": "thinking_delta", "text": "no"},
        },
        {"type": "content_block_stop", "index": 7},
    ]
    told = read(MESSAGES, *map(server_event, [START, *strange, OPEN, SHUT, *LAST]))
    assert told == [ToolCall("a", "t", '{"x": 1}'), Usage(1, 0), Stop("tools", "tool_use")]


def test_an_error_ends_the_turn_at_once():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    with pytest.raises(ModelError) as raised:
        read(MESSAGES, *map(server_event, [START, error]))
    assert raised.value.failure.status == 529


# ---------------------------------------------------------------- Responses


def test_what_only_the_last_event_lists_is_told_by_it():
    call = {"type": "function_call", "call_id": "a", "name": "t", "arguments": "{}"}
    text = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    whole = {"type": "response.completed", "response": {"output": [text, call], "status": "completed"}}
    assert read(RESPONSES, server_event(whole)) == [Text("hi"), ToolCall("a", "t", "{}"), Stop("tools", "completed")]


@pytest.mark.parametrize(
    ("kind", "details", "reason"),
    [
        ("completed", None, "length"),
        ("completed", {"reason": "content_filter"}, "content_policy"),
        ("incomplete", None, "length"),
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
    ],
)
def test_what_says_that_it_is_incomplete_is_whatever_its_event_is_called(kind, details, reason):
    text = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    whole = {"output": [text], "status": "incomplete", "incomplete_details": details}
    assert read(RESPONSES, server_event({"type": f"response.{kind}", "response": whole}))[-1].reason == reason


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}},
        {"type": "error", "code": "server_error", "message": "m"},
        {"type": "error", "error": {"code": "server_error", "message": "m"}},
    ],
)
def test_a_response_that_failed_is_a_failure_with_its_code(event):
    with pytest.raises(ModelError) as raised:
        read(RESPONSES, server_event(event))
    assert (raised.value.failure.status, raised.value.failure.message) == (500, "m")


def test_less_output_than_responses_allow_is_not_asked_for():
    assert body(RESPONSES, Request([Message("user", "x")], (), 1))["max_output_tokens"] == 16
