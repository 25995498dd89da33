"""What a model is offered, what is done of a call that is the loop's own, and what a plan bars."""

from __future__ import annotations

import json

import pytest

from protocol._outcomes import CallResult, Status
from supervisor.core.host_tools import Finish, HostToolError, Question
from supervisor.core.model_events import ToolCall, ToolSpec
from supervisor.core.own_tools import OwnTools, Told
from supervisor.core.plan import PlanMachine

TOOLS = [ToolSpec(name, "", {"type": "object"}) for name in ("read_file", "shell")]


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("1", name, json.dumps(arguments))


def names(own: OwnTools) -> list[str]:
    return [tool.name for tool in own.offered()]


@pytest.fixture
def planned() -> OwnTools:
    return OwnTools("mend it", TOOLS, ["read_file"], PlanMachine("mend it", ["read_file", "shell"]))


def made(own: OwnTools, *titles: str) -> OwnTools:
    assert isinstance(own.read(call("plan", steps=[{"title": title} for title in titles])), Told)
    return own


def ended(own: OwnTools, name: str, status: Status = Status.OK) -> None:
    own.ended(CallResult(name, "read_file", status, summary=f"read_file: {status}"))


def test_without_a_plan_every_tool_is_offered_and_nothing_is_barred() -> None:
    own = OwnTools("mend it", TOOLS)
    assert names(own) == ["read_file", "shell", "finish", "ask_user"]
    assert own.barred(call("shell")) is None
    assert own.not_yet() is None
    assert not own.is_own(call("plan"))  # the daemon has no such tool either, and says what there is


def test_a_tool_of_the_daemons_cannot_pass_for_one_of_the_loops() -> None:
    own = OwnTools("mend it", [*TOOLS, ToolSpec("finish", "another", {"type": "object"})])
    assert names(own).count("finish") == 1
    assert own.is_own(call("finish", answer="x"))


@pytest.mark.behaviour("M115")
def test_whoever_plans_is_offered_nothing_that_may_change_something_and_cannot_call_it_either(
    planned: OwnTools,
) -> None:
    assert names(planned) == ["read_file", "plan", "ask_user"]
    why = planned.barred(call("shell"))
    assert why is not None
    assert "the plan is not made yet" in why
    assert planned.barred(call("read_file")) is None
    assert planned.barred(call("nonsense")) is None


@pytest.mark.behaviour("M114")
def test_the_end_may_be_asked_for_when_every_step_is_done_by_what_the_host_has_seen(planned: OwnTools) -> None:
    with pytest.raises(HostToolError, match="there is no plan yet"):
        planned.read(call("finish", answer="done"))
    made(planned, "look")
    assert planned.barred(call("shell")) is None
    with pytest.raises(HostToolError, match="the next step is not done: look"):
        planned.read(call("finish", answer="done"))
    ended(planned, "c_1", Status.ERROR)
    with pytest.raises(HostToolError, match="'c_1' is no evidence"):
        planned.read(call("step_done", evidence=["c_1"]))
    ended(planned, "c_2")
    assert isinstance(planned.read(call("step_done", evidence=["c_2"])), Told)
    assert planned.not_yet() is None
    assert planned.read(call("finish", answer="done")) == Finish("done")
    assert names(planned) == ["read_file", "shell", "finish", "revise_plan", "ask_user"]


def test_a_plan_that_has_failed_too_often_becomes_a_question_and_the_answer_goes_to_whoever_plans(
    planned: OwnTools,
) -> None:
    for _ in range(3):
        made(planned, "look")
        assert isinstance(planned.read(call("revise_plan", reason="it leads nowhere")), Told)
    made(planned, "look")
    asked = planned.read(call("revise_plan", reason="it leads nowhere"))
    assert isinstance(asked, Question)
    assert "it leads nowhere" in asked.question
    assert "plan the rest anew" in planned.answered()
    assert names(planned) == ["read_file", "plan", "ask_user"]


@pytest.mark.behaviour("M118")
def test_goal_what_is_done_what_is_left_evidence_and_the_last_action_are_told_each_round(planned: OwnTools) -> None:
    made(planned, "look", "mend")
    ended(planned, "c_1")
    planned.read(call("step_done", evidence=["c_1"]))
    ended(planned, "c_2")
    said = planned.progress()
    assert "goal: mend it" in said
    assert "completed:\n- look (shown by c_1)" in said
    assert "remaining:\n- mend" in said
    assert "evidence: c_2" in said
    assert "last action: read_file c_2: ok" in said


def test_what_was_seen_and_planned_is_there_in_another_life(planned: OwnTools) -> None:
    made(planned, "look")
    ended(planned, "c_1")
    again = OwnTools("mend it", TOOLS, ["read_file"], PlanMachine("mend it", ["read_file", "shell"]))
    again.load(json.loads(json.dumps(planned.dump())))
    assert again.progress() == planned.progress()
    assert isinstance(again.read(call("step_done", evidence=["c_1"])), Told)
