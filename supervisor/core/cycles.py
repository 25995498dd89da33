"""Whether the next call goes round again. Owns what a lap is: so many calls in a row, at least two of them different,
that another lap repeats call by call and outcome by outcome.

An attempt whose outcome nobody knows (in flight, blocked, lost) is like any outcome: it breaks no lap and proves none.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.attempts import Attempt
from supervisor.core.detector_sets import LONGEST_PERIOD


def laps_before(attempts: Sequence[Attempt], call_fp: str) -> tuple[int, int]:
    """The smallest period of which the call would begin another lap, and how many equal laps are complete before it;
    (0, 0) when there are not two, or when all calls of the lap are polls. ``attempts``: oldest first."""
    for period in range(2, LONGEST_PERIOD + 1):
        if len(attempts) < 2 * period:
            break
        if attempts[-period].call_fp != call_fp or attempts[-2 * period].call_fp != call_fp:
            continue
        laps = _laps(attempts, period)
        if laps >= 2:
            return period, laps
    return 0, 0


def _laps(attempts: Sequence[Attempt], period: int) -> int:
    newest = [attempts[place - period] for place in range(period)]
    if len({one.call_fp for one in newest}) < 2 or all(one.poll for one in newest):
        return 0
    outcomes = [one.outcome for one in newest]
    laps = 1
    for end in range(len(attempts) - period, period - 1, -period):
        lap = [attempts[end - period + place] for place in range(period)]
        if not all(_is_like(one, new, outcome) for one, new, outcome in zip(lap, newest, outcomes, strict=True)):
            break
        outcomes = [one.outcome if known is None else known for known, one in zip(outcomes, lap, strict=True)]
        laps += 1
    return laps


def _is_like(one: Attempt, new: Attempt, outcome: str | None) -> bool:
    return one.call_fp == new.call_fp and (one.outcome is None or outcome is None or one.outcome == outcome)
