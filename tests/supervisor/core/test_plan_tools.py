"""The tools of a plan: what a model is offered when, and that its arguments are read as they are described."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import InvalidArguments
from supervisor.core.host_tools import HostToolError
from supervisor.core.model_events import ToolSpec
from supervisor.core.plan import CallWanted, Claimed, EvidenceWanted, PlanMachine, Planned, PlanStep, RevisionAsked
from supervisor.core.plan_tools import PLAN, REVISE_PLAN, STEP_DONE, is_plan_call, offered_with, read_plan_call
from tests.supervisor.core.own_tool_calls import called, described

GOOD: list[tuple[ToolSpec, Any, Any]] = [
    (
        PLAN,
        {"steps": [{"title": "look"}, {"title": "tell", "done_when": {"kind": "call", "tool": "write_file"}}]},
        Planned((PlanStep("look", EvidenceWanted(1)), PlanStep("tell", CallWanted("write_file")))),
    ),
    (
        PLAN,
        {"steps": [{"title": "look", "done_when": {"kind": "evidence", "least": 2}}] * 12},
        Planned((PlanStep("look", EvidenceWanted(2)),) * 12),
    ),
    (STEP_DONE, {"evidence": ["c_1", "doc-1"]}, Claimed(("c_1", "doc-1"))),
    (STEP_DONE, {}, Claimed()),
    (REVISE_PLAN, {"reason": "there are no orders"}, RevisionAsked("there are no orders")),
]
BAD: list[tuple[ToolSpec, Any]] = [
    (PLAN, {}),
    (PLAN, {"steps": []}),
    (PLAN, {"steps": [{"title": "look"}] * 13}),
    (PLAN, {"steps": [{"title": ""}]}),
    (PLAN, {"steps": [{"title": "x" * 201}]}),
    (PLAN, {"steps": [{"title": "look"}], "goal": "another"}),
    (PLAN, {"steps": [{"title": "look", "goal": "another"}]}),
    (PLAN, {"steps": [{"title": "look", "done_when": {"kind": "word"}}]}),
    (PLAN, {"steps": [{"title": "look", "done_when": {"kind": "call"}}]}),
    (PLAN, {"steps": [{"title": "look", "done_when": {"kind": "evidence", "least": 0}}]}),
    (PLAN, {"steps": "look"}),
    (STEP_DONE, {"evidence": "c_1"}),
    (STEP_DONE, {"evidence": [1]}),
    (STEP_DONE, {"goal": "another"}),
    (REVISE_PLAN, {}),
    (REVISE_PLAN, {"reason": ""}),
    (REVISE_PLAN, {"reason": "why", "steps": []}),
]


@pytest.mark.parametrize(("tool", "arguments", "meant"), GOOD)
def test_what_fits_the_description_is_read_as_it_is_meant(tool: ToolSpec, arguments: Any, meant: Any) -> None:
    described(tool).check(arguments)
    assert is_plan_call(called(tool, arguments))
    assert read_plan_call(called(tool, arguments)) == meant


@pytest.mark.behaviour("M115")
@pytest.mark.parametrize(("tool", "arguments"), BAD)
def test_what_does_not_fit_another_goal_among_it_is_refused_by_both(tool: ToolSpec, arguments: Any) -> None:
    with pytest.raises(InvalidArguments):
        described(tool).check(arguments)
    with pytest.raises(HostToolError, match=tool.name):
        read_plan_call(called(tool, arguments))


@pytest.mark.parametrize("text", ['{"steps": [', '{"steps": [], "steps": []}', "", "[]", '{"a": NaN}'])
def test_text_that_is_no_json_object_is_refused_with_what_came(text: str) -> None:
    with pytest.raises(HostToolError, match="plan takes steps; it was given"):
        read_plan_call(called(PLAN, text))


@pytest.mark.behaviour("M114")
def test_a_model_may_finish_only_when_every_step_is_done() -> None:
    made = PlanMachine("goal", ())
    assert [tool.name for tool in offered_with(made)] == ["plan", "ask_user"]
    made.on(Planned((PlanStep("look", EvidenceWanted(1)),)))
    assert [tool.name for tool in offered_with(made)] == ["step_done", "revise_plan", "ask_user"]
    made.on(read_plan_call(called(REVISE_PLAN, {"reason": "why"})))
    assert [tool.name for tool in offered_with(made)] == ["plan", "ask_user"]
