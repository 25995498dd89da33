"""Rows and verdicts: what is asked is judged, what is not asked is not."""

from __future__ import annotations

import pytest

from bench._report import NOT_REACHED, REACHED, Count, Row, Section, Target, claims, table


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (Target(p50=2), REACHED),
        (Target(p50=1.9), NOT_REACHED),
        (Target(p50=2, p99=2.9), NOT_REACHED),
        (Target(most=3), REACHED),
        (Target(most=2.9), NOT_REACHED),
        (Target(least=2), REACHED),
        (Target(least=2.1), NOT_REACHED),
        (Target(ratio=2), REACHED),
        (Target(p50=2, ratio=1.9), NOT_REACHED),
        (None, ""),
    ],
)
def test_every_bound_that_is_set_must_hold(target, verdict):
    assert Row("a", "ms", [[1.0, 2.0, 3.0]], [[1.0]], target).verdict == verdict


def test_a_ratio_without_a_floor_is_not_reached():
    assert Row("a", "ms", [[1.0]], (), Target(ratio=5)).verdict == NOT_REACHED


def test_a_survivor_is_a_defect_and_a_slow_figure_is_none():
    section = Section(
        "s", [Count("alive", 1, 10), Count("dead", 10, 10, 10), Row("slow", "ms", [[9.0]], (), Target(p50=1))]
    )
    assert [count.what for count in section.unsafe] == ["alive"]


def test_a_count_that_nobody_judges_has_no_verdict():
    assert Count("seen", 3, 10, None).verdict == ""


def test_the_table_of_claims_shows_only_what_answers_one():
    section = Section(
        "s", [Row("plain", "ms", [[1.0]]), Row("x", "ms", [[1.0]], (), Target(p50=2), "the claim", "0.5")]
    )
    said = claims([section])
    assert "the claim [ms]" in said
    assert "plain" not in said
    assert "plain" in table(section.lines)
