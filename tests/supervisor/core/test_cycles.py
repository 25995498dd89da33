from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.attempts import Attempt
from supervisor.core.cycles import laps_before


def attempts(text: str, *, polls: str = "") -> deque[Attempt]:
    """``"a1 b- a1"``: calls by letter, outcomes by what follows, ``-`` = not known."""
    return deque(
        Attempt(
            n, "t", word[0], f"c_{n}", 0, 0, 0, poll=word[0] in polls, outcome=None if word[1:] == "-" else word[1:]
        )
        for n, word in enumerate(text.split())
    )


def test_two_equal_laps_and_a_call_that_begins_a_third_are_a_cycle():
    assert laps_before(attempts("a1 b1 a1 b1"), "a") == (2, 2)
    assert laps_before(attempts("x1 a1 b1 c1 a1 b1 c1 a1 b1 c1"), "a") == (3, 3)
    assert laps_before(attempts("a1 b1 c1 d1 e1 a1 b1 c1 d1 e1"), "a") == (5, 2)
    assert laps_before(attempts("a1 a1 b1 a1 a1 b1"), "a") == (3, 2)


def test_a_call_that_leaves_the_lap_is_none():
    assert laps_before(attempts("a1 b1 a1 b1"), "b") == (0, 0)
    assert laps_before(attempts("a1 b1 a1 b1"), "c") == (0, 0)


def test_one_lap_is_none_and_neither_is_one_call_over_and_over_or_more_than_five():
    assert laps_before(attempts("a1 b1"), "a") == (0, 0)
    assert laps_before(attempts("a1 a1 a1 a1 a1 a1"), "a") == (0, 0)
    assert laps_before(attempts("a1 b1 c1 d1 e1 f1 a1 b1 c1 d1 e1 f1"), "a") == (0, 0)


def test_another_outcome_ends_the_laps():
    assert laps_before(attempts("a1 b1 a2 b1"), "a") == (0, 0)
    assert laps_before(attempts("a2 b1 a1 b1 a1 b1"), "a") == (2, 2)


def test_the_smallest_period_is_told_and_a_larger_one_where_outcomes_take_turns():
    assert laps_before(attempts("a1 b1 a1 b1 a1 b1 a1 b1"), "a") == (2, 4)
    assert laps_before(attempts("a1 b1 a2 b1 a1 b1 a2 b1"), "a") == (4, 2)


def test_what_nobody_knows_breaks_no_lap_and_joins_no_two_that_differ():
    assert laps_before(attempts("a1 b1 a- b1 a1 b-"), "a") == (2, 3)
    assert laps_before(attempts("a1 b1 a- b- a2 b1"), "a") == (2, 2)
    assert laps_before(attempts("a1 b1 a2 b1 a- b1"), "a") == (2, 2)


def test_polls_alone_are_no_cycle_and_a_poll_with_another_call_is_one():
    assert laps_before(attempts("a1 b1 a1 b1", polls="ab"), "a") == (0, 0)
    assert laps_before(attempts("a1 b1 a1 b1", polls="a"), "a") == (2, 2)


@given(st.lists(st.sampled_from(["a1", "b1", "b2", "c1", "a-", "c-"]), max_size=30), st.sampled_from("abc"))
def test_a_cycle_that_is_told_is_there(history, call):
    """Against the plain definition: every lap has the same calls, and no two known outcomes of a place differ."""
    past = attempts(" ".join(history))
    period, laps = laps_before(past, call)
    if not period:
        return
    shown = list(past)[-period * laps :]
    assert len(shown) == period * laps
    assert shown[0].call_fp == call
    for place in range(period):
        assert len({one.call_fp for one in shown[place::period]}) == 1
        assert len({one.outcome for one in shown[place::period]} - {None}) <= 1
    assert len({one.call_fp for one in shown[:period]}) >= 2
