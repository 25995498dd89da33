"""Equal bytes for values that mean the same, and for no others: held against a plain description of "the same"."""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.core.canonical import canonical

EXACT = 2**53
PARTS = ["a", "e", "\u00e9", "\u0301", "\u00c5", "\u212b", ".0", ",", "]", '"', "\\", "0"]
TEXT = st.lists(st.sampled_from(PARTS), max_size=4).map("".join)
NUMBER = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
NEAR = st.sampled_from([0, -0.0, 1, 1.0, -1.0, EXACT - 1, EXACT - 1.0, EXACT, EXACT + 0.0, EXACT + 1, 1e300, 0.5])
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | NEAR | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def meaning(value: Any) -> Any:
    """What a value is under the written equalities, as something that Python compares."""
    if isinstance(value, (bool, type(None))):
        return (type(value).__name__, value)
    if isinstance(value, (int, float)):
        exact = isinstance(value, int) or (abs(value) < EXACT and math.floor(value) == value)
        return ("integer", int(value)) if exact else ("float", value)
    if isinstance(value, str):
        return ("text", unicodedata.normalize("NFC", value))
    if isinstance(value, list):
        return ("list", tuple(meaning(item) for item in value))
    normal = {unicodedata.normalize("NFC", key) for key in value}
    keep = len(normal) < len(value)
    pairs = {key if keep else unicodedata.normalize("NFC", key): meaning(item) for key, item in value.items()}
    return ("object", tuple(sorted(pairs.items(), key=lambda pair: pair[0])))


def respelled(value: Any, draw: st.DrawFn) -> Any:
    """The same value, or nearly, in other clothes: what is most likely to be mistaken for it."""
    if isinstance(value, dict):
        items = draw(st.permutations(list(value.items())))
        return {respelled(key, draw): respelled(item, draw) for key, item in items}
    if isinstance(value, list):
        return [respelled(item, draw) for item in value]
    if isinstance(value, str):
        return draw(st.sampled_from([value, unicodedata.normalize("NFC", value), unicodedata.normalize("NFD", value)]))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        others = [float(value)] + ([int(value)] if abs(value) < 2**63 and value == int(value) else [])
        return draw(st.sampled_from([value, *others]))
    return value


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    value = draw(VALUE)
    return value, respelled(value, draw) if draw(st.booleans()) else draw(VALUE)


@pytest.mark.behaviour("M152")
@given(pairs())
@example(([1.0], [1]))
@example((["v1.0"], ["v1"]))
@example(({"é": 1, "e\u0301": 2}, {"é": 2, "e\u0301": 1}))
@example(({"é": 1, "e\u0301": 2}, {"é": 1}))
@example((EXACT, EXACT + 1))
def test_bytes_are_equal_exactly_where_the_meanings_are(pair):
    one, other = pair
    assert (canonical(one) == canonical(other)) == (meaning(one) == meaning(other))


@given(VALUE)
def test_the_bytes_are_json_that_means_the_same(value):
    assert meaning(json.loads(canonical(value))) == meaning(value)


def test_keys_stand_in_the_order_of_their_code_points():
    assert (
        canonical({"\U00010000": 1, "\uffff": 2, "b": 3, "B": 4}).decode() == '{"B":4,"b":3,"\uffff":2,"\U00010000":1}'
    )


def test_integers_on_both_sides_of_2_to_the_53_stay_apart():
    assert len({canonical(EXACT), canonical(EXACT + 1), canonical(float(EXACT)), canonical(EXACT - 1)}) == 4
    assert canonical(EXACT - 1.0) == canonical(EXACT - 1)


def test_a_piece_that_is_spelled_already_is_taken_as_it_is_among_others():
    piece = msgspec.Raw(b'T"e\xcc\x81 1.0"')
    assert canonical({"b": piece, "a": ["e\u0301", 1.0]}) == '{"a":["é",1],"b":T"e\u0301 1.0"}'.encode()


def test_nesting_as_deep_as_arguments_may_be_is_no_trouble():
    value: Any = 1.0
    for _ in range(64):
        value = [value]
    assert canonical(value) == b"[" * 64 + b"1" + b"]" * 64
