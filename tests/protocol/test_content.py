"""Content is what JSON can express, at most 64 deep; everything else is named."""

from __future__ import annotations

import datetime
import json
import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._content import DEPTH_LIMIT, content_fault, too_deep
from tests.trust.spoken import json_value

FLAT = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    FLAT | st.text(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


def nested(depth: int, kind: str = "list") -> Any:
    value: Any = [] if kind == "list" else {}
    for _ in range(depth - 1):
        value = [value] if kind == "list" else {"a": value}
    return value


@given(JSON)
def test_whatever_json_can_express_is_content(value: Any) -> None:
    assert content_fault(value) is None
    assert not too_deep(value)


@given(st.integers())
def test_random_messages_carry_content_only(seed: int) -> None:
    assert content_fault(json_value(random.Random(seed))) is None


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"bytes", "bytes"),
        (datetime.datetime(2106, 2, 7, tzinfo=datetime.UTC), "datetime"),
        (msgspec.msgpack.Ext(5, b""), "Ext"),
        ((1, 2), "tuple"),
        ({1, 2}, "set"),
        (msgspec.Raw(b"1"), "Raw"),
        (math.nan, "NaN"),
        (math.inf, "infinity"),
        (-math.inf, "infinity"),
        (2**64, "2^64"),
        (-(2**63) - 1, "2^64"),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: [1, v], lambda v: {"a": {"b": [v]}}], ids=["bare", "list", "deep"]
)
def test_what_json_cannot_express_is_named_wherever_it_hides(value: Any, named: str, wrap: Any) -> None:
    fault = content_fault(wrap(value))
    assert fault is not None
    assert named in fault


@pytest.mark.parametrize("key", [1, 1.5, None, True, b"a", (1,)])
def test_a_key_that_is_not_text_is_a_fault(key: Any) -> None:
    assert content_fault({key: 1}) == "has a key that is not text"
    assert content_fault([{"fine": 1}, [{"a": 1, key: 2}]]) == "has a key that is not text"


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_the_depth_limit_is_exact(kind: str) -> None:
    at, over = nested(DEPTH_LIMIT, kind), nested(DEPTH_LIMIT + 1, kind)
    assert not too_deep(at)
    assert too_deep(over)
    assert content_fault(at) is None
    assert content_fault(over) == "nests deeper than 64"


def test_values_at_the_bottom_do_not_count_as_a_level() -> None:
    value = nested(DEPTH_LIMIT)
    bottom = value
    while bottom:
        bottom = bottom[0]
    bottom.extend([1, "text", None])
    assert not too_deep(value)
    assert content_fault(value) is None


def test_depth_is_found_on_the_last_of_many_branches() -> None:
    assert too_deep([0, *([] for _ in range(1000)), nested(DEPTH_LIMIT)])
    assert not too_deep([0, *([] for _ in range(1000)), nested(DEPTH_LIMIT - 1)])


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_another_limit_counts_the_same_way(limit: int) -> None:
    assert too_deep(nested(limit + 1), limit)
    assert limit == 0 or not too_deep(nested(limit), limit)
    assert not too_deep("flat", limit)


def test_a_value_nested_far_beyond_the_stack_is_judged_without_recursion() -> None:
    assert too_deep(nested(200_000))
    assert content_fault(nested(200_000)) == "nests deeper than 64"


@given(JSON)
def test_content_survives_json_unchanged(value: Any) -> None:
    assert content_fault(value) is None
    assert json.loads(msgspec.json.encode(value)) == value
