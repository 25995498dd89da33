"""What holds in every protocol: a turn is complete or it is nothing, and its pieces may fall anywhere."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.model_events import ModelError, ModelEvent, Stop, Text, ToolCall
from supervisor.core.provider_failures import FailureKind
from supervisor.models import speech
from supervisor.models.server_sent import EventStream, ServerEvent
from supervisor.models.speech import Dialect
from tests.supervisor.models.spoken import ARGUMENTS, CALLS, DIALECTS, REQUEST, chat, messages, responses, server_event

each_dialect = pytest.mark.parametrize(("dialect", "spoken"), DIALECTS.values(), ids=DIALECTS)
LAST_WORD = {"chat": b"data: [DONE]", "messages": b"event: message_stop", "responses": b"event: response.completed"}
SPEAKERS = {"chat": chat, "messages": messages, "responses": responses}


def read(dialect: Dialect, *pieces: bytes) -> list[ModelEvent]:
    """What a whole body says; raises as the reading does."""
    stream, reading, events = EventStream(), dialect.read(REQUEST), list[ModelEvent]()
    for piece in pieces:
        for event in stream.feed(piece):
            events += reading.take(event)
            if events and isinstance(events[-1], Stop):
                return events
    return events + reading.close()


def failure(dialect: Dialect, *pieces: bytes) -> FailureKind:
    with pytest.raises(ModelError) as raised:
        read(dialect, *pieces)
    return raised.value.failure.kind


def words(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.behaviour("M089")
@pytest.mark.behaviour("M093")
@pytest.mark.case("B119")
@pytest.mark.parametrize("name", DIALECTS)
def test_a_body_that_ends_at_any_byte_before_its_last_word_is_no_turn(name):
    """Of chat completions the finish reason is that word: nothing of the turn comes after it."""
    dialect, spoken = DIALECTS[name]
    end = spoken.index(b'"finish_reason": "tool_calls"') if name == "chat" else spoken.index(LAST_WORD[name])
    kinds = {failure(dialect, spoken[:at]) for at in range(end)}
    assert kinds == {FailureKind.EMPTY_STREAM, FailureKind.CUT_STREAM}
    assert isinstance(read(dialect, spoken)[-1], Stop)


@each_dialect
@settings(max_examples=40)
@given(data=st.data())
def test_where_the_pieces_fall_changes_nothing(dialect, spoken, data):
    places = sorted(data.draw(st.sets(st.integers(1, len(spoken) - 1), max_size=20)))
    pieces = [spoken[a:b] for a, b in zip([0, *places], [*places, len(spoken)], strict=True)]
    assert read(dialect, *pieces) == read(dialect, spoken)


@pytest.mark.case("B118")
@pytest.mark.case("B125")
@pytest.mark.parametrize("arguments", ['{"file":"/tmp/f","text":"first half of ', '{"steps":["make","make test"', ""])
@pytest.mark.parametrize("speak", [lambda text, how=how: how(text) for how in (
    lambda text: (DIALECTS["chat"][0], chat("length", text)),
    lambda text: (DIALECTS["chat"][0], chat("tool_calls", text)),
    lambda text: (DIALECTS["chat"][0], chat("stop", text)),
    lambda text: (DIALECTS["messages"][0], messages("max_tokens", text)),
    lambda text: (DIALECTS["responses"][0], responses(text, "incomplete", "max_output_tokens")),
)])  # fmt: skip
def test_arguments_come_as_they_were_said_and_are_completed_by_nobody(speak, arguments):
    """Except where the protocol says that a block which never grew has the input it was opened with."""
    events = read(*speak(arguments))
    told = next(event for event in events if isinstance(event, ToolCall))
    assert told.arguments == arguments or (not arguments and told.arguments == "{}")


@pytest.mark.case("B118")
@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("chat", chat("length")),
        ("messages", messages("max_tokens")),
        ("messages", messages("model_context_window_exceeded")),
        ("responses", responses(ARGUMENTS, "incomplete", "max_output_tokens")),
    ],
)
def test_a_turn_that_was_cut_for_its_length_says_so_whether_or_not_its_calls_are_whole(name, spoken):
    assert read(DIALECTS[name][0], spoken)[-1].reason == "length"


@pytest.mark.case("B125")
@pytest.mark.parametrize("word", ["stop", "tool_calls", "function_call"])
def test_whether_a_turn_waits_for_tools_is_seen_by_its_calls_and_not_by_its_word(word):
    assert read(DIALECTS["chat"][0], chat(word))[-1] == Stop("tools", word)


@pytest.mark.case("B125")
def test_without_a_finish_reason_there_is_no_turn_though_the_stream_says_that_it_is_done():
    assert failure(DIALECTS["chat"][0], chat(None)) is FailureKind.CUT_STREAM


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("chat", chat("content_filter")),
        ("messages", messages("refusal")),
        ("responses", responses(ARGUMENTS, "incomplete", "content_filter")),
    ],
)
def test_what_a_policy_has_stopped_is_said_to_be(name, spoken):
    assert read(DIALECTS[name][0], spoken)[-1].reason == "content_policy"


@pytest.mark.parametrize("name", SPEAKERS)
def test_a_word_that_nobody_knows_is_another_reason(name):
    speak: dict[str, Any] = {"chat": chat("tired"), "messages": messages("tired")}
    spoken = speak.get(name) or responses(ARGUMENTS, "incomplete", "tired")
    assert read(DIALECTS[name][0], spoken)[-1] == Stop("other", "tired")


@each_dialect
@pytest.mark.parametrize(
    "data", ["{", "<html>502</html>", "[" * 100_000, '{"n": ' + "9" * 5000 + "}", "7", '"x"', "[]"]
)
def test_an_event_that_is_not_of_the_protocol_breaks_the_turn(dialect, spoken, data):
    before = spoken[: spoken.rindex(b"\n\n", 0, spoken.index(b'"c1"')) + 2]
    assert failure(dialect, before + server_event(data) + spoken[len(before) :]) is FailureKind.CUT_STREAM


NAMES = "type choices delta index content_block message usage error response item output tool_calls".split()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=12,
)


@each_dialect
@settings(max_examples=40)
@given(value=VALUES)
def test_no_event_whatever_is_in_it_raises_anything_but_a_failure(dialect, spoken, value):
    reading = dialect.read(REQUEST)
    for event in EventStream().feed(spoken[: len(spoken) // 2]):
        reading.take(event)
    with contextlib.suppress(ModelError):
        reading.take(ServerEvent("", json.dumps(value)))


def test_a_turn_that_ends_without_a_word_is_no_answer():
    with pytest.raises(ModelError) as raised:
        speech.finished(DIALECTS["chat"][0].read(REQUEST)._draft, None, "end", "stop")
    assert raised.value.failure.kind is FailureKind.NO_OUTPUT


def test_the_calls_stand_in_their_order_before_usage_and_stop():
    for dialect, spoken in DIALECTS.values():
        assert [type(event) for event in read(dialect, spoken)][-4:-2] == [ToolCall, ToolCall]
        assert [event for event in read(dialect, spoken) if isinstance(event, ToolCall)] == CALLS
        assert words(read(dialect, spoken)) == "Hello"
