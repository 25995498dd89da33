"""How long the time of a run has gone on while it waited and no daemon was there, where it goes on at all.

CLOCK_MONOTONIC says it as long as the machine runs; of another boot only the wall clock knows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from protocol._deadlines import NS_PER_MS
from supervisor.clock import now_ns, wall_ms
from supervisor.containment.strays import boot_id


class Since(NamedTuple):
    """From when on: by the clock of a boot, and by the wall for another one."""

    at_ns: int
    wall_ms: int
    boot: str


def since(at_ns: int) -> Since:
    """An instant of this boot, a moment ago, as another life can read it."""
    return Since(at_ns, wall_ms(), boot_id())


def waited_ns(kept: Any) -> int:
    """Nanoseconds from a kept `Since` until now, never below 0; None was kept: its time stood still."""
    if kept is None:
        return 0
    began = Since(*kept)
    waited = now_ns() - began.at_ns if began.boot == boot_id() else (wall_ms() - began.wall_ms) * NS_PER_MS
    return max(0, waited)
