"""Calls in one turn: each whole, each with an id of its own."""

from __future__ import annotations

from supervisor.core.model_events import Message, Request, ToolCall
from supervisor.models.draft import Draft


def draft_of(*calls: tuple[str | None, str, str], messages: int = 2) -> Draft:
    draft = Draft(Request([Message("user", "x")] * messages))
    for given_id, name, said in calls:
        draft.begin(given_id, name).pieces.append(said)
    return draft


def test_a_call_without_an_id_gets_one_that_no_other_call_of_the_conversation_has():
    first = draft_of((None, "a", "{}"), ("", "b", "{}"), ("c", "c", "{}"), messages=2).calls()
    second = draft_of((None, "a", "{}"), messages=4).calls()
    assert [call.id for call in first][2] == "c"
    assert len({call.id for call in [*first, *second]}) == 4


def test_an_id_that_was_made_is_not_one_that_the_provider_has_given():
    calls = draft_of(("call_2_1", "a", "{}"), (None, "b", "{}"), (None, "c", "{}")).calls()
    assert len({call.id for call in calls}) == 3
    assert [call.name for call in calls] == ["a", "b", "c"]


def test_the_same_call_told_twice_under_one_id_is_one_call():
    assert draft_of(("x", "a", "{}"), ("x", "a", "{}")).calls() == [ToolCall("x", "a", "{}")]


def test_two_calls_under_one_id_are_two_and_the_second_gets_an_id_of_its_own():
    first, second = draft_of(("x", "a", "{}"), ("x", "a", '{"b": 1}')).calls()
    assert first == ToolCall("x", "a", "{}")
    assert second.id not in ("x", "")
    assert second.arguments == '{"b": 1}'


def test_a_call_that_is_made_twice_under_two_ids_is_two_calls():
    assert len(draft_of(("x", "a", "{}"), ("y", "a", "{}"), (None, "a", "{}"), (None, "a", "{}")).calls()) == 4
