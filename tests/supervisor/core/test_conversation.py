"""What was said in a run: every text can be said again, every request has one result, and old steps are a line."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.core.context import NO_PINS, Pins
from supervisor.core.conversation import FOLD_AFTER, Conversation
from supervisor.core.model_events import Message, ToolCall
from tests.supervisor.core.turning import assert_whole, call, result


def round_of(said: Conversation, step: int, *calls: ToolCall, text: str = "a result") -> int | None:
    for one in said.decided("", calls, step):
        said.answered(one, text, step)
    return said.finished(step, [result()] * len(calls))


@pytest.mark.case("B050")
@pytest.mark.case("B049")
@given(st.text(st.sampled_from("a\ud83d\udc00\ud800é🙂\0\u2028") | st.characters(), max_size=20))
@example("\ud800")
@settings(deadline=None, max_examples=50)
def test_no_text_spoils_what_is_said_after_it(text):
    said = Conversation(text)
    said.said_by_user(text)
    (own,) = said.decided(text, [ToolCall(text, text, text)], 1)
    said.answered(own, text, 1)
    shown = msgspec.json.encode(said.context(Pins(text, (text,))))
    assert msgspec.json.decode(shown, type=list[Message])
    again = Conversation(text)
    again.load(msgspec.json.decode(msgspec.json.encode(said.dump())))
    assert again.messages == said.messages
    assert_whole(again.transcript())


def test_what_every_reader_can_take_stays_as_it_is():
    said = Conversation("s")
    said.said_by_user("größer 🙂 \0")
    assert said.messages[0].text == "größer 🙂 \0"


@pytest.mark.case("B092")
def test_a_request_without_a_result_gets_one_that_says_whether_it_may_have_done_something():
    said = Conversation("s")
    first, second, third = said.decided("", [call("look"), call("pay"), call("look")], 1)
    said.answered(first, "found", 1)
    whole = said.transcript([second.id])
    assert_whole(whole)
    texts = {message.answers: message.text for message in whole}
    assert texts[first.id] == "found"
    assert "unknown" in texts[second.id]
    assert "not executed" in texts[third.id]


def test_ids_are_unique_whatever_a_model_calls_its_calls():
    said = Conversation("s")
    ids = [
        one.id
        for step in (1, 2)
        for one in said.decided("", [call("look", named) for named in ("a", "", "a", "call_2")], step)
    ]
    assert len(set(ids)) == 8
    assert ids[0] == "a"
    again = Conversation("s")
    again.load(said.dump())
    assert again.decided("", [call("look", "a")], 3)[0].id not in ids


@pytest.mark.behaviour("M049")
@pytest.mark.behaviour("M141")
def test_a_finished_step_is_a_line_once_enough_later_ones_are():
    said = Conversation("s")
    said.said_by_user("the task")
    folded = [round_of(said, step, call("look"), call("look")) for step in range(1, FOLD_AFTER + 3)]
    assert folded == [None] * FOLD_AFTER + [1, 2]
    assert said.messages[0].text == "the task"
    assert said.messages[1].text.startswith("[step 1, folded: look ok, look ok")
    assert [message.step for message in said.messages].count(1) == 1
    assert_whole(said.transcript())


def test_a_later_run_of_a_session_knows_what_was_said_and_folds_its_own_steps_alone():
    first = Conversation("s")
    first.said_by_user("the first task")
    round_of(first, 1, call("look", "a"), text="what the first run found")
    later = Conversation("s", first.transcript())
    later.said_by_user("the second task")
    for step in range(1, FOLD_AFTER + 2):
        round_of(later, step, call("look", "a"))
    texts = [message.text for message in later.messages]
    assert texts[:3] == ["the first task", "", "what the first run found"], "they are no steps of this run"
    assert_whole(later.transcript())


def test_what_is_shown_ends_with_the_latest_and_begins_with_the_system():
    said = Conversation("be careful")
    for number in range(50):
        said.said_by_user(f"message {number}")
    shown = said.context(NO_PINS, 5)
    assert [message.text for message in shown] == ["be careful", *(f"message {number}" for number in range(45, 50))]
