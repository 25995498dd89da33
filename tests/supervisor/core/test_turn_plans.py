"""A loop with a plan: who is offered what, what is done of it, and what every round is told of where it stands."""

from __future__ import annotations

import pytest

from supervisor.core import turn_words as words
from supervisor.core.conversation import Conversation
from supervisor.core.own_tools import OwnTools
from supervisor.core.plan import MOST_REVISIONS, PlanMachine
from supervisor.core.turn import TurnMachine
from tests.supervisor.core.turning import TOOLS, Loop, call, result

STEPS = [{"title": "look at it"}, {"title": "pay", "done_when": {"kind": "call", "tool": "pay"}}]


def planning() -> Loop:
    loop = Loop()
    loop.machine = made()
    return loop


def made() -> TurnMachine:
    conversation = Conversation("Be careful.", [])
    conversation.said_by_user("mend it")
    own = OwnTools("mend it", TOOLS, ["look"], PlanMachine("mend it", [tool.name for tool in TOOLS]))
    return TurnMachine(conversation, own, words.Terms())


def shown(loop: Loop) -> tuple[set[str], str]:
    """The names of the tools that the next turn is offered, and the last thing it reads."""
    request = loop.paid().request
    return {tool.name for tool in request.tools}, request.messages[-1].text


@pytest.mark.behaviour("M115")
def test_a_planner_is_offered_no_tool_that_writes_and_a_call_of_one_is_not_made() -> None:
    loop = planning()
    offered, _ = shown(loop)
    assert offered == {"look", "plan", "ask_user"}
    loop.on(words.Decided("", (call("pay", "1"), call("look", "2")), "tools", None, 1))
    act = loop.wanted(words.Act)
    assert [proposed.call.name for proposed in act.proposed] == ["look"]
    assert [declined.call.name for declined in act.declined] == ["pay"]


@pytest.mark.behaviour("M114")
def test_a_plan_is_carried_out_to_its_end_and_only_then_may_the_task_be_finished() -> None:
    loop = planning()
    loop.says(call("plan", steps=STEPS))
    assert "step 1 of 2: look at it" in loop.told()[0]
    assert shown(loop)[0] == {"look", "pay", "step_done", "revise_plan", "ask_user"}
    loop.on(words.Decided("", (call("finish", answer="done"),), "tools", None, 1))
    assert "AskFinish" not in loop.wants(), "the model says that it is done, and the host knows better"
    loop.on(words.Acted(()))
    loop.acts(call("look"), results=[result("look", name="c_1")])
    loop.says(call("step_done", evidence=["c_1"]))
    assert "step 1 is done. step 2 of 2: pay" in loop.told()[0]
    loop.acts(call("pay"), results=[result("pay", name="c_2")])
    loop.says(call("step_done"))
    assert shown(loop)[0] == {"look", "pay", "finish", "revise_plan", "ask_user"}
    loop.on(words.Decided("", (call("finish", answer="done"),), "tools", None, 1))
    assert loop.wanted(words.AskFinish).finish.answer == "done"


@pytest.mark.behaviour("M118")
def test_every_round_reads_last_of_all_where_it_stands() -> None:
    loop = planning()
    assert "remaining:\n- make a plan\nevidence: none\nlast action: none" in shown(loop)[1]
    loop.on(words.Decided("", (call("plan", steps=STEPS),), "tools", None, 1))
    loop.acts(call("look"), results=[result("look", name="c_1")])
    text = shown(loop)[1]
    assert "goal: mend it\ncompleted: nothing\nremaining:\n- look at it" in text
    assert "evidence: c_1\nlast action: look c_1: ok" in text
    loop.on(words.Decided("", (call("step_done", evidence=["c_1"]),), "tools", None, 1))
    assert "completed:\n- look at it (shown by c_1)\nremaining:\n- pay" in shown(loop)[1]


@pytest.mark.behaviour("M114")
def test_a_plan_that_cannot_be_revised_any_more_is_handed_to_a_person() -> None:
    loop = planning()
    loop.says(call("plan", steps=STEPS))
    for _ in range(MOST_REVISIONS):
        loop.says(call("revise_plan", reason="nothing is there"))
        loop.says(call("plan", steps=STEPS))
    loop.says(call("revise_plan", reason="nothing is there"))
    assert "nothing is there" in loop.wanted(words.AskPerson).question
