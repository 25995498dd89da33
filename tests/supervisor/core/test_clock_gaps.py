"""Clocks that go apart are noticed, and blamed on nobody."""

from __future__ import annotations

import pytest

from supervisor.core.clock_gaps import Gap, gap_between

HOURS_8 = 8 * 3_600_000


@pytest.mark.parametrize(
    ("after", "gap"),
    [
        ((1_000, 500), None),
        ((1_900, 500), None),
        ((1_000 + HOURS_8, 500 + HOURS_8), Gap(0, HOURS_8)),
        ((1_000 + HOURS_8, 500), Gap(HOURS_8, 0)),
        ((1_000 - HOURS_8, 500), Gap(-HOURS_8, 0)),
    ],
)
def test_a_step_and_a_sleep_are_told_apart(after: tuple[int, int], gap: Gap | None) -> None:
    assert gap_between((1_000, 500), after) == gap
