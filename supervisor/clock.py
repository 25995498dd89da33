"""What time it is, for the whole daemon. The one module of the parent that reads a clock.

CLOCK_MONOTONIC decides everything: wall-clock steps and time the machine slept move no deadline. Trio's clock is the
same clock in seconds, so an instant of ours can be handed to it.
"""

from __future__ import annotations

import time

NS_PER_S = 1_000_000_000


def now_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds."""
    return time.monotonic_ns()


def wall_s() -> float:
    """Seconds since the epoch: for stamps that people read, never for a decision."""
    return time.time()
