"""Order statistics of samples taken in rounds. A round is what ran close together in time: ratios are taken inside one,
so that a machine that is slow for a while is slow for both sides of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Rounds = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Summary:
    """What is printed of a set of samples."""

    n: int
    least: float
    p50: float
    p99: float
    most: float


def summary(rounds: Rounds) -> Summary:
    """Over all rounds together. Raises ValueError without a single sample."""
    samples = sorted(sample for one in rounds for sample in one)
    if not samples:
        raise ValueError("no sample was taken")
    return Summary(len(samples), samples[0], median(samples), quantile(samples, 0.99), samples[-1])


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest sample that is not below ``share`` of all (nearest rank); with few samples the largest."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratio(rounds: Rounds, floor: Rounds) -> float | None:
    """Median over the rounds of (median of ours / median of the floor's); None where a round lacks one side."""
    pairs = [(ours, theirs) for ours, theirs in zip(rounds, floor, strict=False) if ours and theirs]
    return median(median(ours) / median(theirs) for ours, theirs in pairs) if pairs else None
