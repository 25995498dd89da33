"""Numbers that are counted: families of samples under labels, as plain values. What they are called and when they move
is `metrics`'; how they are written `exposition`'s.

A label's value never comes from a client: whoever counts folds what is not known into `OTHER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

OTHER = "other"
Labels: TypeAlias = tuple[str, ...]


class Distribution:
    """Observations in buckets; ``counts`` has one for each bound and one for what lies beyond the last."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0


class Counter:
    """What only grows, by labels."""

    kind: Literal["counter"] = "counter"

    def __init__(self, name: str, says: str, labels: Labels = ()) -> None:
        self.name, self.says, self.labels = name, says, labels
        self.values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count one more, or ``by``."""
        self.values[labels] = self.values.get(labels, 0) + by


class Gauge:
    """What is, by labels; a value that nobody has set is not there."""

    kind: Literal["gauge"] = "gauge"

    def __init__(self, name: str, says: str, labels: Labels = ()) -> None:
        self.name, self.says, self.labels = name, says, labels
        self.values: dict[Labels, float] = {}

    def set(self, value: float, *labels: str) -> None:
        """It is so much now."""
        self.values[labels] = value


class Histogram:
    """How often what was seen, by labels. ``bounds``: upper ends of the buckets, rising; what equals one lies in it."""

    kind: Literal["histogram"] = "histogram"

    def __init__(self, name: str, says: str, bounds: Sequence[float], labels: Labels = ()) -> None:
        self.name, self.says, self.bounds, self.labels = name, says, tuple(bounds), labels
        self.values: dict[Labels, Distribution] = {} if labels else {(): Distribution(len(self.bounds))}

    def see(self, value: float, *labels: str) -> None:
        """One observation."""
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = Distribution(len(self.bounds))
        found.counts[bisect_left(self.bounds, value)] += 1
        found.total += value


Family: TypeAlias = Counter | Gauge | Histogram


class Sample(NamedTuple):
    """One line of numbers: ``buckets`` (bound, how many at or below it) and ``value`` their sum, or ``value`` alone."""

    labels: Labels
    value: float
    buckets: tuple[tuple[float, int], ...] = ()


class Snapshot(NamedTuple):
    """A family as it stood, for whoever writes it down elsewhere."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    says: str
    labels: Labels
    samples: tuple[Sample, ...]


def snapshot(family: Family) -> Snapshot:
    """The family now, in the order of its labels."""
    if isinstance(family, Histogram):
        samples = tuple(_cumulated(labels, found, family.bounds) for labels, found in sorted(family.values.items()))
    else:
        samples = tuple(Sample(labels, value) for labels, value in sorted(family.values.items()))
    return Snapshot(family.kind, family.name, family.says, family.labels, samples)


def _cumulated(labels: Labels, found: Distribution, bounds: tuple[float, ...]) -> Sample:
    below, buckets = 0, []
    for bound, count in zip((*bounds, float("inf")), found.counts, strict=True):
        below += count
        buckets.append((bound, below))
    return Sample(labels, found.total, tuple(buckets))
