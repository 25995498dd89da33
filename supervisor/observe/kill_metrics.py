"""What is counted of ends by force: how fast a kill is, what it has not confirmed, what calls left behind. A machine.

A kill that is not confirmed has survivors until it is; a new daemon begins without any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol._events import Event
from supervisor.observe.families import Counter, Family, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class KillMetrics:
    """`ended` takes what the end of a call says of it; the others take their events."""

    def __init__(self) -> None:
        self._unconfirmed: set[object] = set()
        self._kills = Counter("deadlined_kills_total", "Calls whose processes were killed.", ("tool", "reason"))
        self._signal = Histogram(
            "deadlined_kill_signal_seconds", "From the instant that a kill was due to its signal.", _SECONDS
        )
        self._confirm = Histogram(
            "deadlined_kill_confirm_seconds", "From the signal to the kernel's word that nothing is left.", _SECONDS
        )
        self._late_confirm = Counter(
            "deadlined_kills_unconfirmed_total", "Kills that were not confirmed within the confirm budget."
        )
        self._leftovers = Counter(
            "deadlined_left_processes_total", "Processes that calls had left when they ended, and that were killed."
        )

    def families(self) -> list[Family]:
        """All of them, as they are now."""
        survivors = Gauge("deadlined_survivors", "Killed calls of which something may still run.")
        survivors.set(len(self._unconfirmed))
        return [self._kills, self._signal, self._confirm, self._late_confirm, survivors, self._leftovers]

    def ended(self, tool: str, reason: str, data: Mapping[str, Any]) -> None:
        """A call has ended. ``data``: of its event; its processes may have been killed, or some found that it left."""
        if "left_processes" in data:
            self._leftovers.add(by=data["left_processes"])
        receipt = data.get("kill")
        if not receipt:
            return
        self._kills.add(tool, reason)
        signalled, confirmed = receipt["signalled_after_ms"], receipt["confirmed_after_ms"]
        self._signal.see(signalled / 1_000)
        if confirmed is not None:
            self._confirm.see(max(0.0, confirmed - signalled) / 1_000)

    def not_confirmed(self, event: Event) -> None:
        """The confirm budget was not enough: something may still run."""
        self._late_confirm.add()
        self._unconfirmed.add(event.data.get("worker"))

    def confirmed(self, event: Event) -> None:
        """Nothing runs any more."""
        self._unconfirmed.discard(event.data.get("worker"))

    def started(self) -> None:
        """A new daemon: what the last one's journal does not tell of any more is not there any more."""
        self._unconfirmed.clear()
