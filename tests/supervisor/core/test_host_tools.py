"""How a model asks for the end, and a person: read as it is described, and refused with what came and what may come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol import FieldValue, InvalidArguments
from supervisor.core.host_tools import ASK_USER, FINISH, Finish, HostToolError, Question, is_host_call, read_host_call
from supervisor.core.model_events import ToolSpec
from tests.supervisor.core.own_tool_calls import called, described

GOOD: list[tuple[ToolSpec, Any, Any]] = [
    (FINISH, {"answer": "42"}, Finish("42")),
    (FINISH, {"answer": ""}, Finish("")),
    (
        FINISH,
        {"answer": "42", "fields": {"total": {"value": "42", "evidence": ["c_1"]}, "date": {"value": "today"}}},
        Finish("42", {"total": FieldValue("42", ("c_1",)), "date": FieldValue("today")}),
    ),
    (ASK_USER, {"question": "Which order?"}, Question("Which order?")),
]
BAD: list[tuple[ToolSpec, Any]] = [
    (FINISH, {}),
    (FINISH, {"answer": 42}),
    (FINISH, {"answer": None}),
    (FINISH, {"answer": "42", "done": True}),
    (FINISH, {"answer": "42", "fields": []}),
    (FINISH, {"answer": "42", "fields": {"total": "42"}}),
    (FINISH, {"answer": "42", "fields": {"total": {"value": 42}}}),
    (FINISH, {"answer": "42", "fields": {"total": {"value": "42", "evidence": "c_1"}}}),
    (FINISH, {"answer": "42", "fields": {"total": {"value": "42", "sure": True}}}),
    (ASK_USER, {}),
    (ASK_USER, {"question": ["Which?"]}),
    (ASK_USER, {"question": "Which?", "default": "4711"}),
]


@pytest.mark.parametrize(("tool", "arguments", "meant"), GOOD)
def test_what_fits_the_description_is_read_as_it_is_meant(tool: ToolSpec, arguments: Any, meant: Any) -> None:
    described(tool).check(arguments)
    assert is_host_call(called(tool, arguments))
    assert read_host_call(called(tool, arguments)) == meant


@pytest.mark.parametrize(("tool", "arguments"), BAD)
def test_what_does_not_fit_the_description_is_refused_with_what_came(tool: ToolSpec, arguments: Any) -> None:
    with pytest.raises(InvalidArguments):
        described(tool).check(arguments)
    with pytest.raises(HostToolError) as refused:
        read_host_call(called(tool, arguments))
    wanted = ", ".join(tool.schema["properties"])
    assert f"{tool.name} takes {wanted}; it was given {json.dumps(arguments)!r}" in str(refused.value)


@pytest.mark.parametrize(
    "text", ['{"answer": "4', '{"answer": "1", "answer": "2"}', '"42"', '{"answer": "\\ud800"}', '{"answer": NaN}', ""]
)
def test_text_that_is_no_whole_object_is_never_completed(text: str) -> None:
    with pytest.raises(HostToolError, match="finish takes answer, fields"):
        read_host_call(called(FINISH, text))


def test_a_fence_around_it_is_taken_off_as_of_any_tool() -> None:
    assert read_host_call(called(FINISH, '```json\n{"answer": "42"}\n```')) == Finish("42")


def test_an_empty_question_asks_nobody() -> None:
    with pytest.raises(HostToolError, match="an empty one"):
        read_host_call(called(ASK_USER, {"question": " \n"}))


def test_a_long_text_is_not_said_back_whole() -> None:
    with pytest.raises(HostToolError) as refused:
        read_host_call(called(FINISH, {"answers": "x" * 100_000}))
    assert len(str(refused.value)) < 1_000
