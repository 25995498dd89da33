"""Instants and budgets. An instant is an integer of CLOCK_MONOTONIC nanoseconds and its name ends in ``_ns``;
a budget is an integer of milliseconds and its name ends in ``_ms``. Nothing here reads a clock: ``now_ns`` comes in.

There is no "no deadline": every call ends at ``CEILING_MS`` after its submission at the latest.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the checkers know the name; importing it would cost the killer and `exec` 10 ms
if TYPE_CHECKING:
    from typing import TypeGuard

NS_PER_MS = 1_000_000
CEILING_MS = 3_600_000
DEFAULT_TIMEOUT_MS = 10_000
EXEC_DEFAULT_MS = 600_000
NEVER_NS = 1 << 62
"""Later than any instant a machine will see; what "no timer" is where a number is needed."""


def instant_after(now_ns: int, budget_ms: int) -> int:
    """The instant ``budget_ms`` milliseconds after ``now_ns``."""
    return now_ns + budget_ms * NS_PER_MS


def remaining_ms(deadline_ns: int, now_ns: int) -> int:
    """Whole milliseconds left until the deadline, rounded up, never negative: 1 ns left is 1, nothing left is 0."""
    return max(0, -((now_ns - deadline_ns) // NS_PER_MS))


def elapsed_ms(since_ns: int, now_ns: int) -> int:
    """Whole milliseconds from one instant to a later one, rounded down."""
    return (now_ns - since_ns) // NS_PER_MS


def valid_budget_ms(value: object) -> TypeGuard[int]:
    """Whether a budget from the wire is one: an integer of at least 1. ``True``, ``2.0``, ``"5"`` and NaN are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
