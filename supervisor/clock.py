"""What time it is, for the whole daemon. The one module of the parent that reads a clock.

CLOCK_MONOTONIC decides everything: wall-clock steps and time the machine slept move no deadline.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import trio

NS_PER_S = 1_000_000_000


def now_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds."""
    return time.monotonic_ns()


def loop_time(instant_ns: int) -> float:
    """An instant in the seconds of the running loop's own clock, for cancel scopes."""
    return trio.current_time() + (instant_ns - time.monotonic_ns()) / NS_PER_S


class ClockOffsets(NamedTuple):
    """How far the wall clock, and the clock that counts time asleep, are ahead of `now_ns`; milliseconds."""

    wall_ms: int
    asleep_ms: int


def offsets() -> ClockOffsets:
    """The clocks side by side: a difference between two looks is a step of the wall clock, or sleep of the machine."""
    monotonic = time.monotonic_ns()
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return ClockOffsets((time.time_ns() - monotonic) // 1_000_000, (boot - monotonic) // 1_000_000)


def wall_ms() -> int:
    """Milliseconds since 1970 by the wall clock: a stamp for people and for the next life, never a reason to decide."""
    return time.time_ns() // 1_000_000
