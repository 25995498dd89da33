"""The hash of a goal: the same for the same text, whatever is in it."""

from __future__ import annotations

from supervisor.core.goals import goal_hash


def test_goals_that_differ_have_other_hashes_and_any_text_has_one() -> None:
    goals = ["mend the test", "mend the test ", "", "ü", "half \ud800"]
    assert len({goal_hash(goal) for goal in goals}) == len(goals)
    assert [goal_hash(goal) for goal in goals] == [goal_hash(goal) for goal in goals]
