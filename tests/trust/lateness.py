"""How late this process itself is woken: what is told late on a machine that stands still is not the daemon's doing."""

from __future__ import annotations

import threading
import time

CONFIRM_S = 1.0
"""The daemon's budget for confirming an end."""
EVERY_S = 0.01
STANDS_S = 0.005
FACTOR = 3
"""The daemon, its killer and a worker may each have stood as long as we have."""


class Pulse(threading.Thread):
    """Wakes a hundred times a second. Use it as a context."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._stood: list[tuple[float, float]] = []

    def __enter__(self) -> Pulse:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Until the context ends."""
        last = time.monotonic()
        while not self._over.wait(EVERY_S):
            now = time.monotonic()
            if (late := now - last - EVERY_S) > STANDS_S:
                self._stood.append((now, late))
            last = now

    def too_late(self, asked: float, deadline_ms: int, heard: float) -> float:
        """Seconds that an answer came beyond its deadline, the confirm budget and what this machine stood still; 0 or
        less: it came in time. Instants are monotonic seconds."""
        beyond = heard - asked - deadline_ms / 1_000 - CONFIRM_S
        if beyond <= 0:
            return beyond
        return beyond - FACTOR * sum(late for at, late in self._stood if asked <= at <= heard + EVERY_S)
