from __future__ import annotations

import pytest

from supervisor.observe.alerts import MOST_RUNS, Alert, Alerts, AlertSettings

SETTINGS = AlertSettings(calls_per_run=2, tokens_per_run=100)


def test_an_alert_is_said_once_when_more_was_used_than_the_threshold() -> None:
    alerts = Alerts(SETTINGS)
    alerts.opened("r_1")
    assert [alerts.charged("r_1", {"tool_calls": 1}) for _ in range(4)] == [[], [], [Alert("r_1", "calls", 3, 2)], []]
    assert (alerts.over("calls"), alerts.over("tokens")) == (1, 0)
    alerts.settled("r_1")
    assert alerts.over("calls") == 0


def test_tokens_are_counted_in_total_or_in_and_out_and_what_was_given_back_counts_back() -> None:
    alerts = Alerts(SETTINGS)
    alerts.opened("r_1")
    assert alerts.charged("r_1", {"tokens_in": 60, "tokens_out": 30}) == []
    assert alerts.charged("r_1", {"tokens_in": 5, "tokens_out": 5, "tokens_total": 10}) == []
    assert alerts.charged("r_1", {"tokens_total": -50}) == []
    assert alerts.charged("r_1", {"tokens_total": 51}) == [Alert("r_1", "tokens", 101, 100)]


def test_a_threshold_of_0_says_nothing() -> None:
    alerts = Alerts(AlertSettings(0, 0))
    alerts.opened("r_1")
    assert alerts.charged("r_1", {"tool_calls": 1 << 40, "tokens_total": 1 << 40}) == []


def test_what_was_never_opened_or_has_settled_is_not_watched() -> None:
    alerts = Alerts(SETTINGS)
    assert alerts.charged("r_1", {"tool_calls": 9}) == []
    alerts.opened("r_1")
    alerts.settled("r_1")
    assert alerts.charged("r_1", {"tool_calls": 9}) == []


def test_no_more_runs_are_watched_than_there_is_room_for() -> None:
    alerts = Alerts(SETTINGS)
    for number in range(MOST_RUNS + 1):
        alerts.opened(f"r_{number}")
    assert alerts.charged("r_0", {"tool_calls": 9}) == []
    assert alerts.charged(f"r_{MOST_RUNS}", {"tool_calls": 9}) != []


@pytest.mark.parametrize("kind", ["calls", "tokens"])
def test_each_kind_has_its_own_threshold(kind: str) -> None:
    assert AlertSettings(1, 2).threshold(kind) == {"calls": 1, "tokens": 2}[kind]  # type: ignore[arg-type]  # a word
