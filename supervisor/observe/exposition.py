"""Snapshots of metrics as text, in the exposition format of Prometheus. The format is prometheus_client's to know.

That library takes a third of a second to load on a slow machine (it brings an HTTP server): it is loaded by the first
who asks, in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from supervisor.observe.families import Sample, Snapshot

if TYPE_CHECKING:
    from prometheus_client import Metric


def render(snapshots: Sequence[Snapshot]) -> str:
    """The text. Blocking: milliseconds, the first time more."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshots))
    return generate_latest(registry).decode()


class _Collector:
    """What the library asks for its families."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """Each family, once."""
        from prometheus_client import core

        kinds: dict[str, Any] = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for one in self._snapshots:
            family = kinds[one.kind](one.name, one.says, labels=one.labels)
            for sample in one.samples:
                _add(family, sample)
            yield family


def _add(family: Any, sample: Sample) -> None:
    if sample.buckets:
        buckets = [("+Inf" if bound == float("inf") else str(float(bound)), count) for bound, count in sample.buckets]
        family.add_metric(sample.labels, buckets, sample.value)
    else:
        family.add_metric(sample.labels, sample.value)
