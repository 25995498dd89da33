"""What time it is, for the whole daemon. The one module of the parent that reads a clock.

CLOCK_MONOTONIC decides everything: wall-clock steps and time the machine slept move no deadline.
"""

from __future__ import annotations

import time

import trio

NS_PER_S = 1_000_000_000


def now_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds."""
    return time.monotonic_ns()


def loop_time(instant_ns: int) -> float:
    """An instant in the seconds of the running loop's own clock, for cancel scopes."""
    return trio.current_time() + (instant_ns - time.monotonic_ns()) / NS_PER_S


def wall_ms() -> int:
    """Milliseconds since 1970 by the wall clock: a stamp for people and for the next life, never a reason to decide."""
    return time.time_ns() // 1_000_000
