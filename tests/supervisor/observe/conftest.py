"""Lists of events, numbered as a log numbers them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from protocol._events import Event
from supervisor.observe.alerts import AlertSettings
from supervisor.observe.metrics import Metrics

SERVED = ("shell", "search")


class Log:
    """Feeds events to metrics, and reads numbers back."""

    def __init__(self, settings: AlertSettings | None = None) -> None:
        self.metrics = Metrics(SERVED.__contains__, settings or AlertSettings())
        self._numbers = itertools.count(1)

    def __call__(self, kind: str, call: str | None = None, run: str | None = None, **data: Any) -> list[Any]:
        return self.metrics.on(Event(next(self._numbers), 0, kind, call, run, 0, data, ""))

    def value(self, name: str, *labels: str) -> float | None:
        """Of a counter or a gauge; of a histogram the sum. None: not there."""
        return next((one.value for one in self.samples(name) if one.labels == labels), None)

    def count(self, name: str, *labels: str) -> int:
        """How many observations a histogram has."""
        return next(one.buckets[-1][1] for one in self.samples(name) if one.labels == labels)

    def samples(self, name: str) -> Any:
        [found] = [one for one in self.metrics.snapshots() if one.name == name]
        return found.samples


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def log_with() -> Callable[[AlertSettings], Log]:
    return Log
