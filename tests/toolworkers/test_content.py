"""Values of Python tools as content."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolworkers._content import CONTENT_LIMIT, to_content
from toolworkers._tools import ToolError


@dataclasses.dataclass
class _Point:
    x: int
    y: set[int]


_sayable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(_sayable)
def test_what_json_can_express_is_content_as_it_is(value: Any) -> None:
    assert to_content(value) == value


def test_other_values_are_converted() -> None:
    assert to_content(_Point(1, {2})) == {"x": 1, "y": [2]}
    assert to_content({1: (2, 3)}) == {"1": [2, 3]}
    assert to_content(datetime.date(2024, 2, 29)) == "2024-02-29"
    assert to_content(b"ab") == "YWI="


def _nested(depth: int) -> list[Any]:
    box: list[Any] = []
    for _ in range(depth - 1):
        box = [box]
    return box


def _cycle() -> list[Any]:
    box: list[Any] = []
    box.append(box)
    return box


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), {"a": float("inf")}, 2**64, -(2**63) - 1, [2**70], "\ud800", {"\udfff": 1}, _nested(65),
     _nested(5_000), _cycle(), lambda: 1, 1j],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_no_result_can_carry_is_an_error_of_code_content(value: object) -> None:
    with pytest.raises(ToolError) as refused:
        to_content(value)
    assert refused.value.code == "content"
    assert str(refused.value.class_) == "tool"


def test_sixty_four_levels_are_allowed() -> None:
    assert to_content(_nested(64)) == _nested(64)


def test_content_that_would_not_fit_a_frame_is_refused_by_its_size() -> None:
    fits = "x" * (CONTENT_LIMIT - 5)  # a msgpack text of this size has a header of five bytes
    assert len(msgspec.msgpack.encode(to_content(fits))) == CONTENT_LIMIT
    with pytest.raises(ToolError, match="write large results to a file"):
        to_content(fits + "x")
