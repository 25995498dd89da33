from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol._events import Event, EventKind
from supervisor.observe.alerts import Alert, AlertSettings
from tests.supervisor.observe.conftest import Log


def test_an_event_is_counted_once_whatever_is_read_again(log: Log) -> None:
    event = Event(5, 0, "run_admitted", None, "r_1", 0, {}, "")
    log.metrics.on(event)
    log.metrics.on(event)
    log.metrics.on(Event(4, 0, "run_admitted", None, "r_0", 0, {}, ""))
    assert log.value("deadlined_runs_opened_total") == 1
    assert log.value("deadlined_events_seq") == log.metrics.seq == 5


@pytest.mark.parametrize("kind", [*EventKind, "of_a_later_version"])
def test_no_event_however_little_it_says_breaks_the_counting(log: Log, kind: str) -> None:
    log(kind)
    log(kind, "c_1", "r_1")
    log(
        kind, "c_1", "r_1", tool=None, reason=7, status=[], dimension={}, detector=1, level=None, used=None, limits=None
    )
    assert log.value("deadlined_events_seq") == 3


@pytest.mark.behaviour("M145")
def test_a_run_that_uses_more_calls_or_tokens_than_is_usual_is_told_while_it_goes_on(
    log_with: Callable[[AlertSettings], Log],
) -> None:
    log = log_with(AlertSettings(calls_per_run=2, tokens_per_run=1_000))
    log("run_admitted", None, "r_1")
    told = [log("call_validated", "c", "r_1", tool="search", prior=0, charge={"tool_calls": 1}) for _ in range(4)]
    assert told == [[], [], [Alert("r_1", "calls", 3, 2)], []]
    assert log("budget_reserved", None, "r_1", charge={"tokens_total": 900}) == []
    assert log("budget_settled", None, "r_1", charge={"tokens_total": 200}) == [Alert("r_1", "tokens", 1_100, 1_000)]
    assert [log.value("deadlined_alerts_total", kind) for kind in ("calls", "tokens")] == [1, 1]
    assert [log.value("deadlined_runs_over_alert", kind) for kind in ("calls", "tokens")] == [1, 1]
    assert [log.value("deadlined_alert_threshold", kind) for kind in ("calls", "tokens")] == [2, 1_000]
    log("run_settled", None, "r_1", status="completed", reason="finish_accepted")
    assert [log.value("deadlined_runs_over_alert", kind) for kind in ("calls", "tokens")] == [0, 0]
    assert log.value("deadlined_alerts_total", "calls") == 1


def test_lost_events_and_starts_are_counted(log: Log) -> None:
    log("events_lost", count=7)
    log("daemon_started", pid=1)
    assert log.value("deadlined_events_lost_total") == 7
    assert log.value("deadlined_daemon_starts_total") == 1


def test_every_metric_has_a_name_of_its_own_that_says_its_kind(log: Log) -> None:
    snapshots = log.metrics.snapshots()
    names = [one.name for one in snapshots]
    assert len(set(names)) == len(names)
    for one in snapshots:
        assert one.name.startswith("deadlined_")
        assert one.name.endswith("_total") is (one.kind == "counter"), one.name
        assert one.says.endswith("."), one.name
