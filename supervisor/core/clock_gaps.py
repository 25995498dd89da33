"""Whether the clocks went apart between two looks: the wall clock was set, or the machine slept. Nothing is decided by
it, deadlines least of all (they count the time that the machine was awake); it explains stamps in the log. Pure."""

from __future__ import annotations

from typing import NamedTuple

NOTABLE_MS = 1_000
"""Less is the clock being kept right."""


class Gap(NamedTuple):
    """``stepped_ms``: how far the wall clock was set forward (below 0: back), without the time asleep."""

    stepped_ms: int
    slept_ms: int


def gap_between(before: tuple[int, int], after: tuple[int, int]) -> Gap | None:
    """Both: milliseconds that the wall clock and the clock of time asleep are ahead of the one that counts. None: as
    they were."""
    slept_ms = after[1] - before[1]
    gap = Gap(after[0] - before[0] - slept_ms, slept_ms)
    return gap if abs(gap.stepped_ms) >= NOTABLE_MS or slept_ms >= NOTABLE_MS else None
