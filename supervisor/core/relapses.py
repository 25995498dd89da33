"""How long a helper of the daemon that has died is waited with before it is started again. A machine.

Rules
1. The n-th death in a row waits n - 1 steps longer than the first, up to a cap.
2. Who had lived for ``PROVEN_NS`` has died for the first time: however often others have died in a daemon's life.
"""

from __future__ import annotations

_STEP_S, _CAP_S = 0.05, 1.0
PROVEN_NS = 10_000_000_000


class Relapses:
    """Of one helper. ``first_s``: how long its first death waits."""

    def __init__(self, first_s: float = 0.0) -> None:
        self._first_s = first_s
        self._row = 0
        self._started_ns = 0

    def started(self, now_ns: int) -> None:
        """It lives."""
        self._started_ns = now_ns

    def died(self, now_ns: int) -> float:
        """It is dead, or could not be started: after so many seconds it may be, again."""
        if now_ns - self._started_ns >= PROVEN_NS:
            self._row = 0
        self._started_ns = now_ns
        self._row += 1
        return min(self._first_s + _STEP_S * (self._row - 1), _CAP_S)
