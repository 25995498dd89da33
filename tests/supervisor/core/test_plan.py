"""The machine of a plan: who may do what, what proves a step, that it is handed on and ends, whatever models say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import Contract, ToolDescription
from supervisor.core import plan
from supervisor.core.plan import (
    Accepted,
    AskPerson,
    CallEnded,
    CallWanted,
    Claimed,
    EvidenceFound,
    EvidenceWanted,
    PersonAnswered,
    PlanMachine,
    Planned,
    PlanStep,
    Refused,
    RevisionAsked,
    State,
    offered,
)

GOAL = "find out why orders are late"
LOOK, TELL = PlanStep("look at the orders"), PlanStep("write it down", CallWanted("write_file"))


def described(name: str, *, read_only: bool) -> ToolDescription:
    return ToolDescription(name, "", Contract(read_only=read_only), {"type": "object"})


def machine(*steps: PlanStep) -> PlanMachine:
    made = PlanMachine(GOAL, ("search", "write_file"))
    if steps:
        (taken,) = made.on(Planned(steps))
        assert isinstance(taken, Accepted)
    return made


def refusal(effects: plan.Effects) -> str:
    (effect,) = effects
    assert isinstance(effect, Refused)
    return effect.text


@pytest.mark.behaviour("M114")
def test_a_plan_is_carried_out_step_by_step_and_each_is_validated_by_what_the_host_has_seen() -> None:
    made = machine(LOOK, TELL)
    assert made.state is State.EXECUTING
    assert "'c_9' is no evidence of this step" in refusal(made.on(Claimed(("c_9",))))
    made.on(CallEnded("c_1", "search", ok=True))
    (taken,) = made.on(Claimed(("c_1",)))
    assert isinstance(taken, Accepted)
    assert "step 2 of 2: write it down" in taken.text
    assert "no call of write_file has succeeded" in refusal(made.on(Claimed()))
    made.on(CallEnded("c_2", "write_file", ok=True))
    made.on(Claimed())
    assert made.state is State.DONE
    assert [(step.title, step.evidence) for step in made.done] == [(LOOK.title, ("c_1",)), (TELL.title, ("c_2",))]


@pytest.mark.behaviour("M114")
@pytest.mark.parametrize("count", [0, plan.MOST_STEPS + 1])
def test_a_plan_without_an_end_is_none(count: int) -> None:
    made = machine()
    assert "allowed: 1 to 12" in refusal(made.on(Planned((LOOK,) * count)))
    assert made.state is State.PLANNING
    assert made.on(Planned((LOOK,) * plan.MOST_STEPS)) != ()
    assert made.state is State.EXECUTING


@pytest.mark.behaviour("M115")
def test_a_planner_is_offered_nothing_that_may_change_something() -> None:
    tools = [described("search", read_only=True), described("shell", read_only=False)]
    undeclared = ToolDescription("odd", "", Contract(), {})
    assert offered("planner", [*tools, undeclared]) == tools[:1]
    assert offered("executor", [*tools, undeclared]) == [*tools, undeclared]
    made = machine()
    assert made.role == "planner"
    made.on(Planned((LOOK,)))
    assert made.role == "executor"
    made.on(RevisionAsked("it leads nowhere"))
    assert made.role == "planner"


@pytest.mark.behaviour("M115")
def test_no_input_changes_the_goal_and_the_plan_of_another_goal_is_not_taken_over() -> None:
    made = machine(LOOK)
    kept = made.dump()
    other = PlanMachine("delete the orders", ("search",))
    with pytest.raises(ValueError, match="another goal"):
        other.load(kept)
    assert other.state is State.PLANNING
    again = PlanMachine(GOAL, ("search",))
    again.load(kept)
    assert (again.goal, again.goal_hash) == (GOAL, made.goal_hash)


@pytest.mark.behaviour("M115")
def test_an_executor_cannot_put_another_plan_in_the_place_of_the_one_it_has() -> None:
    made = machine(LOOK, TELL)
    assert "the plan is fixed" in refusal(made.on(Planned((PlanStep("do something else"),))))
    assert made.remaining == (LOOK, TELL)


def test_a_failed_call_and_a_call_of_an_earlier_step_prove_nothing() -> None:
    made = machine(LOOK, LOOK)
    made.on(CallEnded("c_1", "search", ok=False))
    assert "'c_1' is no evidence" in refusal(made.on(Claimed(("c_1",))))
    made.on(CallEnded("c_2", "search", ok=True))
    made.on(Claimed(("c_2",)))
    assert "'c_2' is no evidence" in refusal(made.on(Claimed(("c_2",))))


def test_a_call_made_while_the_plan_was_made_proves_no_step() -> None:
    made = machine()
    made.on(CallEnded("c_1", "search", ok=True))
    made.on(Planned((LOOK,)))
    assert "'c_1' is no evidence" in refusal(made.on(Claimed(("c_1",))))


def test_evidence_of_the_run_proves_one_step_and_no_second_one() -> None:
    made = machine(LOOK, LOOK)
    made.on(EvidenceFound("doc-1"))
    made.on(Claimed(("doc-1",)))
    made.on(EvidenceFound("doc-1"))
    assert "'doc-1' is no evidence" in refusal(made.on(Claimed(("doc-1",))))
    made.on(EvidenceFound("doc-2"))
    made.on(Claimed(("doc-2",)))
    assert made.state is State.DONE


def test_naming_one_thing_twice_is_not_two_pieces_of_evidence() -> None:
    made = machine(PlanStep("look twice", EvidenceWanted(2)))
    made.on(EvidenceFound("doc-1"))
    assert "1 pieces of evidence are named and 2 needed" in refusal(made.on(Claimed(("doc-1", "doc-1"))))


def test_a_claim_with_a_true_and_an_invented_name_is_refused_whole() -> None:
    made = machine(LOOK)
    made.on(EvidenceFound("doc-1"))
    assert "'doc-7' is no evidence" in refusal(made.on(Claimed(("doc-1", "doc-7"))))
    assert made.done == ()


def test_a_condition_on_a_tool_that_is_not_there_is_refused_with_those_that_are() -> None:
    text = refusal(machine().on(Planned((PlanStep("fly", CallWanted("fly")),))))
    assert "no tool 'fly' is known; available: 'search', 'write_file'" in text


@pytest.mark.behaviour("M114")
def test_a_step_claimed_too_often_goes_back_to_the_planner_who_replaces_what_is_not_done() -> None:
    made = machine(LOOK, TELL)
    made.on(EvidenceFound("doc-1"))
    made.on(Claimed(("doc-1",)))
    for _ in range(plan.MOST_CLAIMS):
        assert made.state is State.EXECUTING
        last = made.on(Claimed())
    assert [type(effect) for effect in last] == [Refused, Accepted]
    assert (made.state, made.role) == (State.PLANNING, "planner")
    new = PlanStep("say it aloud")
    made.on(Planned((new,)))
    assert ([step.title for step in made.done], made.remaining) == ([LOOK.title], (new,))


@pytest.mark.behaviour("M114")
def test_behind_the_last_revision_a_person_is_asked_and_the_answer_goes_to_the_planner() -> None:
    made = machine(LOOK)
    for _ in range(plan.MOST_REVISIONS):
        (back,) = made.on(RevisionAsked("no orders are there"))
        assert isinstance(back, Accepted)
        made.on(Planned((LOOK,)))
    (asked,) = made.on(RevisionAsked("no orders are there"))
    assert isinstance(asked, AskPerson)
    assert "no orders are there" in asked.question
    assert "a person is asked" in refusal(made.on(Planned((LOOK,))))
    made.on(PersonAnswered())
    assert made.state is State.PLANNING
    made.on(Planned((LOOK,)))
    assert isinstance(made.on(RevisionAsked("still"))[-1], AskPerson)


def test_a_plan_that_is_done_can_still_be_revised_and_takes_no_claim() -> None:
    made = machine(LOOK)
    made.on(EvidenceFound("doc-1"))
    made.on(Claimed(("doc-1",)))
    assert "every step is done already" in refusal(made.on(Claimed(("doc-1",))))
    made.on(RevisionAsked("its check is red"))
    assert made.state is State.PLANNING


INPUTS = st.one_of(
    st.builds(Planned, st.lists(st.sampled_from([LOOK, TELL]), max_size=14).map(tuple)),
    st.builds(Claimed, st.lists(st.sampled_from(["c_1", "c_2", "doc-1", "made up"]), max_size=3).map(tuple)),
    st.builds(RevisionAsked, st.just("why")),
    st.builds(CallEnded, st.sampled_from(["c_1", "c_2"]), st.sampled_from(["search", "write_file"]), st.booleans()),
    st.builds(EvidenceFound, st.sampled_from(["doc-1", "doc-2"])),
    st.builds(PersonAnswered),
)


@given(st.lists(INPUTS, max_size=40), st.integers(0, 40))
def test_any_order_of_inputs_is_taken_and_a_machine_made_from_its_state_goes_on_the_same(
    inputs: list[plan.Input], cut: int
) -> None:
    one, other = machine(), machine()
    for number, taken in enumerate(inputs):
        if number == cut:
            other = machine()
            other.load(json.loads(json.dumps(one.dump())))
        assert one.on(taken) == other.on(taken)
        assert one.dump() == other.dump()
        assert "made up" not in {name for step in one.done for name in step.evidence}
        assert (one.state is State.EXECUTING) <= bool(one.remaining)


def test_every_state_has_an_answer_to_every_input() -> None:
    kinds = {kind for _, kind in plan._TABLE}
    assert {(state, kind) for state in State for kind in kinds} == plan._TABLE.keys()
    assert len(kinds) == 6


def test_what_is_remembered_of_a_step_is_bounded() -> None:
    made = machine(LOOK)
    for number in range(2_000):
        made.on(CallEnded(f"c_{number}", "search", ok=True))
        made.on(EvidenceFound(f"doc-{number}"))
    known = made.known_evidence()
    assert len(known) == 2_000
    assert known[-1] == "c_1999"
    assert len(refusal(made.on(Claimed(("x",))))) < 1_000
