from __future__ import annotations

from typing import Any

import pytest

from supervisor.observe import call_metrics
from tests.supervisor.observe.conftest import Log

KILL = {"mechanism": ["pidns"], "killed": 2, "signalled_after_ms": 0.4, "confirmed_after_ms": 2.4, "confirmed": True}


def ended(log: Log, call: str = "c_1", tool: str = "shell", status: str = "ok", **data: Any) -> None:
    told = {"reason": None, "delivery": "succeeded", "duration_ms": 3, **data}
    log("call_ended", call, told.pop("run", None), tool=tool, status=status, **told)


def test_calls_are_counted_by_tool_status_and_reason(log: Log) -> None:
    ended(log)
    ended(log, status="killed", reason="time_budget")
    log("call_refused", "c_3", tool="shell", reason="invalid_arguments", text="no")
    assert log.value("deadlined_calls_total", "shell", "ok", "none") == 1
    assert log.value("deadlined_calls_total", "shell", "killed", "time_budget") == 1
    assert log.value("deadlined_calls_total", "shell", "refused", "invalid_arguments") == 1


def test_what_a_client_invents_becomes_no_label(log: Log) -> None:
    for number in range(50):
        log("call_refused", None, "r_1", tool=f"invented_{number}", reason=f"reason_{number}", text="")
        log("call_validated", None, "r_1", tool=f"gone_{number}", prior=0)
    log("call_refused", None, None, tool=["shell"], reason={"a": 1}, text="")
    labels = {one.labels for snapshot in log.metrics.snapshots() for one in snapshot.samples}
    assert {word for words in labels for word in words} <= {"other", "refused", "calls", "tokens", "in", "out"}


@pytest.mark.behaviour("M127")
def test_repeats_are_counted_by_tool_whether_they_ran_or_were_kept_from_it(log: Log) -> None:
    for prior in (0, 0, 1):
        log("call_validated", "c", "r_1", tool="search", prior=prior)
    log("call_refused", "c", "r_1", tool="search", reason="repeat_call", text="")
    log("call_refused", "c", "r_1", tool="search", reason="budget", text="")
    log("call_refused", "c", None, tool="search", reason="overloaded", text="")
    log("call_validated", "c", "r_1", tool="shell", prior=0)
    assert log.value("deadlined_run_attempts_total", "search") == 5
    assert log.value("deadlined_repeated_calls_total", "search") == 2
    assert log.value("deadlined_repeated_call_ratio", "search") == 2 / 5
    assert log.value("deadlined_repeated_call_ratio", "shell") == 0


@pytest.mark.behaviour("M130")
def test_the_share_of_retries_that_arguments_or_permission_caused(log: Log) -> None:
    assert log.value("deadlined_retries_pointless_ratio") is None, "of nothing there is no share"
    log("retry_scheduled", "c", "r_1", tool="search", **{"class": "transient_tool"})
    for reason in ("invalid_arguments", "policy_denied"):
        log("call_refused", "c", "r_1", tool="search", reason=reason, text="")
    log("call_validated", "c", "r_1", tool="search", prior=0)
    assert log.value("deadlined_retries_total", "daemon", "transient_tool") == 1
    assert log.value("deadlined_retries_total", "client", "argument") == 1
    assert log.value("deadlined_retries_total", "client", "policy") == 1
    assert log.value("deadlined_retries_pointless_ratio") == 2 / 3


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ({"status": "error"}, "feedback"),
        ({"status": "killed", "reason": "time_budget"}, "killed"),
        ({"status": "crashed", "reason": "worker_lost"}, "worker_lost"),
        ({"status": "not_executed", "reason": "invalid_arguments"}, "argument"),
        ({"status": "not_executed", "reason": "sandbox_denied"}, "policy"),
    ],
)
def test_a_clients_retry_is_the_next_attempt_at_a_tool_that_failed_in_its_run(
    log: Log, end: dict[str, str], error: str
) -> None:
    log("call_validated", "c_1", "r_1", tool="shell", prior=0)
    ended(log, run="r_1", **end)
    log("call_validated", "c", "r_2", tool="shell", prior=0)
    log("call_validated", "c", "r_1", tool="search", prior=0)
    assert log.value("deadlined_retries_total", "client", error) is None
    log("call_validated", "c", "r_1", tool="shell", prior=0)
    assert log.value("deadlined_retries_total", "client", error) == 1


def test_after_a_success_or_the_end_of_its_run_the_next_attempt_is_no_retry(log: Log) -> None:
    for call, status in (("c_1", "error"), ("c_2", "ok"), ("c_3", "error")):
        log("call_validated", call, "r_1", tool="shell", prior=0)
        ended(log, call, run="r_1", status=status)
    log("run_settled", None, "r_1", status="completed", reason="finish_accepted")
    log("call_validated", "c_4", "r_1", tool="shell", prior=0)
    assert log.value("deadlined_retries_total", "client", "feedback") == 1  # that of c_2


def test_a_check_that_fails_is_no_attempt_of_the_client(log: Log) -> None:
    ended(log, "c_1", run="r_1", status="error")
    log("call_validated", "c_2", "r_1", tool="shell", prior=0)
    assert log.samples("deadlined_retries_total") == ()


def test_kills_are_counted_by_tool_and_reason_with_their_two_latencies(log: Log) -> None:
    ended(log, status="killed", reason="time_budget", kill=KILL)
    ended(log, status="cancelled", reason="client", kill={**KILL, "confirmed_after_ms": None, "confirmed": False})
    assert log.value("deadlined_kills_total", "shell", "time_budget") == 1
    assert log.value("deadlined_kills_total", "shell", "client") == 1
    assert log.value("deadlined_kill_signal_seconds") == pytest.approx(0.0008)
    assert log.value("deadlined_kill_confirm_seconds") == pytest.approx(0.002)
    assert (log.count("deadlined_kill_signal_seconds"), log.count("deadlined_kill_confirm_seconds")) == (2, 1)


def test_a_killed_worker_has_survivors_until_its_end_is_confirmed_or_another_daemon_begins(log: Log) -> None:
    log("kill_unconfirmed", "c_1", worker=3)
    log("kill_unconfirmed", "c_2", worker=4)
    assert log.value("deadlined_survivors") == 2
    log("kill_confirmed", "c_1", worker=3)
    assert log.value("deadlined_survivors") == 1
    log("daemon_started", pid=1)
    assert log.value("deadlined_survivors") == 0
    assert log.value("deadlined_kills_unconfirmed_total") == 2


def test_leftovers_and_late_answers_are_counted(log: Log) -> None:
    ended(log, left_processes=3)
    ended(log, late_result=True)
    assert log.value("deadlined_left_processes_total") == 3
    assert log.value("deadlined_late_results_total") == 1


def test_an_effect_is_open_until_somebody_closes_it(log: Log) -> None:
    for call in ("c_1", "c_2", "c_3"):
        log("call_claimed", call, tool="shell")
    ended(log, "c_1", status="killed", reason="time_budget", delivery="unknown")
    ended(log, "c_2", status="unknown", reason="daemon_restarted", delivery="unknown")
    ended(log, "c_3")
    ended(log, "c_4", status="killed", reason="time_budget", delivery="unknown")  # never claimed: read-only
    assert log.value("deadlined_unresolved_effects") == 2
    log("effect_closed", "c_1", note="done")
    log("effect_reconciled", "c_2", state="done")
    log("effect_closed", "c_9", note="unknown here")
    assert log.value("deadlined_unresolved_effects") == 0


def test_the_memory_for_runs_and_effects_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_metrics, "_MOST_RUNS", 2)
    monkeypatch.setattr(call_metrics, "_MOST_EFFECTS", 2)
    for number in range(3):
        log("call_validated", f"c_{number}", f"r_{number}", tool="shell", prior=0)
        log("call_claimed", f"c_{number}", tool="shell")
        ended(log, f"c_{number}", run=f"r_{number}", status="killed", reason="time_budget", delivery="unknown")
    assert log.value("deadlined_unresolved_effects") == 2
    log("call_validated", "c", "r_0", tool="shell", prior=0)
    assert log.samples("deadlined_retries_total") == ()
