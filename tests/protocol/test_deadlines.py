"""Instants and budgets: whole numbers, rounded so that a deadline is never said to be over while it is not."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._deadlines import (
    CEILING_MS,
    DEFAULT_TIMEOUT_MS,
    EXEC_DEFAULT_MS,
    NEVER_NS,
    NS_PER_MS,
    elapsed_ms,
    instant_after,
    remaining_ms,
    valid_budget_ms,
)

INSTANTS = st.integers(0, NEVER_NS)


@given(INSTANTS, st.integers(1, CEILING_MS))
def test_a_fresh_deadline_has_its_whole_budget_left(now_ns: int, budget_ms: int) -> None:
    assert remaining_ms(instant_after(now_ns, budget_ms), now_ns) == budget_ms


@given(INSTANTS, INSTANTS)
def test_what_is_left_is_rounded_up_and_never_negative(deadline_ns: int, now_ns: int) -> None:
    left = remaining_ms(deadline_ns, now_ns)
    assert left >= 0
    assert (left == 0) is (now_ns >= deadline_ns)
    if left:
        assert (left - 1) * NS_PER_MS < deadline_ns - now_ns <= left * NS_PER_MS


@pytest.mark.parametrize(
    ("left_ns", "ms"), [(1, 1), (NS_PER_MS, 1), (NS_PER_MS + 1, 2), (0, 0), (-1, 0), (-NS_PER_MS, 0), (-(10**18), 0)]
)
def test_one_nanosecond_left_is_one_millisecond_and_nothing_left_is_none(left_ns: int, ms: int) -> None:
    assert remaining_ms(10**18 + left_ns, 10**18) == ms


@given(INSTANTS, st.integers(0, 10**15))
def test_what_has_passed_is_rounded_down(since_ns: int, passed_ns: int) -> None:
    assert elapsed_ms(since_ns, since_ns + passed_ns) == passed_ns // NS_PER_MS


@given(INSTANTS, st.integers(1, CEILING_MS))
def test_never_is_later_than_any_deadline_and_fits_a_slot(now_ns: int, budget_ms: int) -> None:
    assert NEVER_NS < 1 << 63
    assert instant_after(now_ns % (1 << 61), budget_ms) < NEVER_NS


@pytest.mark.parametrize("value", [1, 2, 250, CEILING_MS, 2**80])
def test_a_whole_number_of_at_least_one_is_a_budget(value: int) -> None:
    assert valid_budget_ms(value)


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        -(2**80),
        True,
        False,
        1.0,
        2.5,
        1e300,
        math.nan,
        math.inf,
        "5",
        "5s",
        "",
        None,
        [],
        [1],
        {},
        b"1",
        Decimal(5),
    ],
)
def test_anything_else_is_none(value: Any) -> None:
    assert not valid_budget_ms(value)
    assert not valid_budget_ms(Fraction(3))


def test_the_house_numbers_are_those_of_the_manual() -> None:
    assert (CEILING_MS, DEFAULT_TIMEOUT_MS, EXEC_DEFAULT_MS) == (3_600_000, 10_000, 600_000)
    assert all(map(valid_budget_ms, (CEILING_MS, DEFAULT_TIMEOUT_MS, EXEC_DEFAULT_MS)))
