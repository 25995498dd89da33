"""Order statistics: nearest rank, and ratios inside a round."""

from __future__ import annotations

import pytest

from bench._stats import quantile, ratio, summary


def test_a_quantile_is_a_sample_and_not_a_number_between_two():
    ordered = [float(n) for n in range(1, 201)]
    assert quantile(ordered, 0.99) == 198.0
    assert quantile(ordered, 0.5) == 100.0


def test_with_few_samples_the_99th_percentile_is_the_largest():
    assert quantile([1.0, 2.0, 50.0], 0.99) == 50.0


def test_a_summary_is_of_all_rounds_together():
    got = summary([[3.0, 1.0], [], [2.0]])
    assert (got.n, got.least, got.p50, got.most) == (3, 1.0, 2.0, 3.0)


def test_no_sample_is_an_error_and_no_row_of_zeros():
    with pytest.raises(ValueError, match="no sample"):
        summary([[], []])


def test_a_round_that_was_slow_for_both_sides_does_not_change_the_ratio():
    quiet, loaded = ([10.0], [5.0]), ([1000.0], [500.0])
    assert ratio([quiet[0], loaded[0]], [quiet[1], loaded[1]]) == 2.0


def test_a_round_without_a_floor_gives_no_ratio():
    assert ratio([[10.0]], [[]]) is None
    assert ratio([[10.0], [9.0]], [[], [3.0]]) == 3.0
