from __future__ import annotations

from supervisor.observe.families import Counter, Gauge, Histogram, Sample, snapshot


def test_a_counter_without_labels_is_there_from_the_start_and_one_with_labels_once_it_counts() -> None:
    plain, labelled = Counter("a", "A."), Counter("b", "B.", ("x",))
    assert snapshot(plain).samples == (Sample((), 0),)
    assert snapshot(labelled).samples == ()
    plain.add()
    plain.add(by=3)
    labelled.add("2")
    labelled.add("1")
    assert snapshot(plain).samples == (Sample((), 4),)
    assert snapshot(labelled).samples == (Sample(("1",), 1), Sample(("2",), 1))


def test_a_gauge_is_what_was_set_last() -> None:
    gauge = Gauge("a", "A.")
    assert snapshot(gauge).samples == ()
    gauge.set(3)
    gauge.set(2)
    assert snapshot(gauge).samples == (Sample((), 2),)


def test_a_histogram_cumulates_and_what_equals_a_bound_lies_in_its_bucket() -> None:
    histogram = Histogram("a", "A.", (1, 2))
    for value in (0, 1, 1.5, 2, 2.1):
        histogram.see(value)
    [sample] = snapshot(histogram).samples
    assert sample.buckets == ((1, 2), (2, 4), (float("inf"), 5))
    assert abs(sample.value - 6.6) < 1e-9


def test_a_snapshot_does_not_move() -> None:
    counter = Counter("a", "A.")
    before = snapshot(counter)
    counter.add()
    assert before.samples == (Sample((), 0),)
