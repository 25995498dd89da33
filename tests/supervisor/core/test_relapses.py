"""Helpers that die again and again are started ever more slowly; one that lived for a while as if it were the first."""

from __future__ import annotations

import pytest

from supervisor.core.relapses import PROVEN_NS, Relapses


@pytest.mark.parametrize("first_s", [0.0, 0.05])
def test_deaths_in_a_row_wait_longer_each_up_to_a_second(first_s: float) -> None:
    relapses = Relapses(first_s)
    relapses.started(0)
    waits = [relapses.died(number) for number in range(40)]
    assert waits[0] == first_s
    assert waits == sorted(waits)
    assert waits[1] > waits[0]
    assert waits[-1] == 1.0


@pytest.mark.parametrize(("lived_ns", "is_first"), [(PROVEN_NS, True), (PROVEN_NS - 1, False)])
def test_who_has_lived_for_a_while_has_died_for_the_first_time(lived_ns: int, is_first: bool) -> None:
    relapses = Relapses()
    relapses.started(0)
    for _ in range(30):
        relapses.died(0)
    relapses.started(5)
    assert (relapses.died(5 + lived_ns) == 0.0) is is_first


def test_one_that_cannot_be_started_does_not_live_by_being_waited_for() -> None:
    relapses = Relapses()
    relapses.started(0)
    first, second = relapses.died(PROVEN_NS), relapses.died(PROVEN_NS + 1)
    assert (first, second > first) == (0.0, True)
