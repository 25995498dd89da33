"""Everything that is counted, from the log of events: the same stream that the doors show, so that a number can be
checked against the log that it came from. A machine: events in, alerts out; a snapshot for whoever asks.

Rules
1. Events come in the order of their numbers. One that was counted is not counted again.
2. A kind that nobody here counts changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol._events import Event, EventKind
from supervisor.observe.alerts import KINDS, Alert, Alerts, AlertSettings
from supervisor.observe.call_metrics import CallMetrics
from supervisor.observe.families import Counter, Family, Gauge, Snapshot, snapshot
from supervisor.observe.run_metrics import RunMetrics


class Metrics:
    """``served``: whether a tool is served now; no other name becomes a label."""

    def __init__(self, served: Callable[[str], bool], settings: AlertSettings) -> None:
        self.seq = 0
        """The number of the last event that was counted."""
        self._alerts = Alerts(settings)
        self._calls, self._runs = CallMetrics(served), RunMetrics()
        self._alerted = Counter("deadlined_alerts_total", "Runs that used more than an alert's threshold.", ("kind",))
        self._lost = Counter("deadlined_events_lost_total", "Events that the disk did not take.")
        self._starts = Counter("deadlined_daemon_starts_total", "Daemons that began to serve.")

    def on(self, event: Event) -> list[Alert]:
        """Count one event; what somebody should be told because of it."""
        if event.seq <= self.seq:
            return []
        self.seq = event.seq
        for group in (self._calls.on, self._runs.on):
            handler = group.get(event.kind)
            if handler is not None:
                handler(event)
        if event.kind == EventKind.EVENTS_LOST:
            self._lost.add(by=event.data.get("count", 0))
        elif event.kind == EventKind.DAEMON_STARTED:
            self._starts.add()
        return self._watch(event)

    def snapshots(self) -> list[Snapshot]:
        """Everything as it stands."""
        return [snapshot(family) for family in (*self._calls.families(), *self._runs.families(), *self._own())]

    def _watch(self, event: Event) -> list[Alert]:
        if event.run is None:
            return []
        if event.kind == EventKind.RUN_ADMITTED:
            self._alerts.opened(event.run)
        elif event.kind == EventKind.RUN_SETTLED:
            self._alerts.settled(event.run)
        charge = event.data.get("charge")
        alerts = self._alerts.charged(event.run, charge) if charge else []
        for alert in alerts:
            self._alerted.add(alert.kind)
        return alerts

    def _own(self) -> list[Family]:
        over = Gauge("deadlined_runs_over_alert", "Runs that go on and have used more than the threshold.", ("kind",))
        threshold = Gauge(
            "deadlined_alert_threshold", "What a run may use before somebody is told; 0: nobody.", ("kind",)
        )
        for kind in KINDS:
            over.set(self._alerts.over(kind), kind)
            threshold.set(self._alerts.settings.threshold(kind), kind)
        last = Gauge("deadlined_events_seq", "The number of the last event that is counted here.")
        last.set(self.seq)
        return [self._alerted, over, threshold, self._starts, self._lost, last]
