"""One strange turn spoils none after it: what is sent is valid, what is heard can be kept."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import InvalidArguments
from supervisor.core import arguments
from supervisor.core.model_events import Message, Request, ToolCall, ToolSpec
from supervisor.models import well_formed
from supervisor.models.draft import Draft
from tests.supervisor.models.spoken import DIALECTS, REQUEST

ANYTHING = st.text(st.characters(blacklist_categories=()))
HALF = "\ud83c"


@pytest.mark.case("B049")
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (HALF, "\ufffd"),
        (f"a{HALF}b", "a\ufffdb"),
        ("\ud83c\udf89", "🎉"),
        ("\udf89\ud83c", "\ufffd\ufffd"),
        ("ä🎉", "ä🎉"),
    ],
)
def test_a_half_is_replaced_and_a_pair_is_joined(said, kept):
    assert well_formed.text(said) == kept


@pytest.mark.case("B049")
def test_half_a_pair_in_arguments_is_refused_by_who_reads_them_and_not_repaired():
    heard = well_formed.arguments(f'{{"a": "{HALF}"}}')
    heard.encode()
    with pytest.raises(InvalidArguments, match="half of a surrogate pair"):
        arguments.parse(heard)
    assert arguments.parse(well_formed.arguments('{"a": "\ud83c\udf89"}')).values == {"a": "🎉"}


@given(text=ANYTHING, name=ANYTHING, said=ANYTHING)
@pytest.mark.case("B049")
@pytest.mark.case("B050")
def test_every_history_becomes_a_body_that_anybody_can_read(text, name, said):
    """What was said strangely once is in each later request, too: a tool's result, a name, arguments, a schema."""
    history = Request(
        [
            Message("system", text),
            Message("assistant", text, (ToolCall("c1", name, said), ToolCall("c2", "t", f'{{"a": "{HALF}"}}'))),
            Message("tool", text, answers="c1"),
            Message("tool", HALF, answers="c2"),
        ],
        [ToolSpec("t", text, {"type": "object", "description": text})],
    )
    for dialect, _ in DIALECTS.values():
        sent = well_formed.body(dialect.body(well_formed.sendable(history), "m"))
        msgspec.json.decode(sent)  # which refuses half a pair
        assert "surrogate" not in str(sent)


@pytest.mark.parametrize(
    "said", ['{"a": ', "", "[1]", "no", '{"a": NaN}', "[" * 100_000, '{"a":' + "9" * 5000 + "}", "null"]
)
def test_arguments_that_are_no_object_stand_in_the_history_as_a_text_in_one(said):
    history = Request([Message("assistant", "", (ToolCall("c", "t", said),))])
    (message,) = well_formed.sendable(history).messages
    assert json.loads(message.calls[0].arguments) == {"malformed": said}


@pytest.mark.parametrize("said", ['{"a": 9007199254740993, "b": 18446744073709551616}', "{}", '{ "a":1.50}'])
def test_good_arguments_stand_in_the_history_as_they_were_said(said):
    (message,) = well_formed.sendable(Request([Message("assistant", "", (ToolCall("c", "t", said),))])).messages
    assert message.calls[0].arguments == said
    sent = DIALECTS["messages"][0].body(Request([Message("user", "x"), message]), "m")["messages"][1]["content"][0]
    assert sent["input"] == json.loads(said)


@pytest.mark.parametrize(
    ("name", "sent"), [("", "unnamed"), ("finish ", "finish_"), ("n" * 10_000, "n" * 64), ("ä.b", "__b")]
)
def test_a_name_that_no_provider_takes_does_not_spoil_the_turns_after_it(name, sent):
    (message,) = well_formed.sendable(Request([Message("assistant", "", (ToolCall("c", name, "{}"),))])).messages
    assert message.calls[0].name == sent


def test_a_pair_that_comes_in_two_pieces_is_one_character():
    draft = Draft(REQUEST)
    assert [one.text for piece in ("a\ud83c", "\udf89b", HALF) for one in draft.say(piece)] == ["a", "🎉b"]
    assert [one.text for one in draft.rest()] == ["\ufffd"]
