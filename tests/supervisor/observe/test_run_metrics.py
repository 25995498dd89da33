from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.observe.conftest import Log


def settled(log: Log, **data: Any) -> None:
    told = {"status": "completed", "reason": "finish_accepted", "step": 3, "calls": 4, "elapsed_ms": 2_000, **data}
    log("run_settled", None, "r_1", **told)


@pytest.mark.behaviour("M126")
def test_tool_calls_of_a_run_have_a_mean_and_a_maximum(log: Log) -> None:
    for calls in (2, 41, 5):
        settled(log, calls=calls)
    assert (log.value("deadlined_run_tool_calls"), log.count("deadlined_run_tool_calls")) == (48, 3)
    assert log.value("deadlined_run_tool_calls_max") == 41


@pytest.mark.behaviour("M128")
def test_a_run_has_a_duration_and_tokens_each_way(log: Log) -> None:
    settled(log, elapsed_ms=1_500, tokens_in=700, tokens_out=90, cost_micros=12)
    settled(log, elapsed_ms=500, tokens_in=300, tokens_out=0, cost_micros=0)
    assert log.value("deadlined_run_seconds") == 2.0
    assert (log.value("deadlined_run_tokens", "in"), log.value("deadlined_run_tokens", "out")) == (1_000, 90)
    assert log.count("deadlined_run_tokens", "in") == 2
    assert log.value("deadlined_run_cost_micros_total") == 12
    assert (log.value("deadlined_run_steps"), log.count("deadlined_run_steps")) == (6, 2)


@pytest.mark.behaviour("M129")
def test_the_share_of_runs_that_used_all_their_steps(log: Log) -> None:
    assert log.value("deadlined_run_step_limit_ratio") is None
    settled(log, used={"steps": 25}, limits={"steps": 25}, status="budget_exhausted", reason="step_budget")
    settled(log, used={"steps": 25}, limits={"steps": 25})
    settled(log, used={"steps": 24}, limits={"steps": 25})
    settled(log, used={"steps": 99}, limits={})
    assert log.value("deadlined_runs_reached_step_limit_total") == 2
    assert log.value("deadlined_run_step_limit_ratio") == 0.5


@pytest.mark.behaviour("M131")
def test_the_share_of_runs_that_needed_a_person_and_of_those_that_were_abandoned(log: Log) -> None:
    settled(log, human=2)
    settled(log, status="cancelled", reason="disconnect")
    settled(log, status="blocked", reason="approval_expired", human=1)
    settled(log, status="cancelled", reason="client")
    assert log.value("deadlined_runs_interrupted_total") == 2
    assert log.value("deadlined_run_interrupted_ratio") == 0.5
    assert log.value("deadlined_runs_abandoned_total", "disconnect") == 1
    assert log.value("deadlined_runs_abandoned_total", "expired") == 1
    assert log.value("deadlined_run_abandoned_ratio") == 0.5


@pytest.mark.behaviour("M131")
def test_each_time_that_a_person_is_needed_counts_once(log: Log) -> None:
    log("approval_asked", "c_1", "r_1", approval="a_1")
    log("run_suspended", None, "r_1", reason="approval_required")
    log("run_suspended", None, "r_1", reason="reconcile_required")
    log("run_suspended", None, "r_1", reason="no_new_evidence")
    log("run_suspended", None, "r_1", reason="of a later version")
    log("approval_asked", "c_2", None, approval="a_2")
    needed = {one.labels[0]: one.value for one in log.samples("deadlined_human_interruptions_total")}
    assert needed == {"approval": 2, "reconcile": 1, "input": 2}


def test_runs_are_counted_by_status_and_reason(log: Log) -> None:
    log("run_admitted", None, "r_1", profile="edit")
    settled(log, status="stuck", reason="repeat_call")
    settled(log, status="of a later version", reason="as well")
    assert log.value("deadlined_runs_opened_total") == 1
    assert log.value("deadlined_runs_settled_total", "stuck", "repeat_call") == 1
    assert log.value("deadlined_runs_settled_total", "other", "other") == 1


def test_what_a_run_used_of_each_limit_is_a_share_without_names_of_tools(log: Log) -> None:
    used = {"steps": 5, "tool_calls[search]": 3, "tokens_total": 15_500}
    limits = {"steps": 10, "tool_calls[search]": 3, "tokens_total": 15_000, "retries": 0, "wall_ms": 1}
    settled(log, used=used, limits=limits, elapsed_ms=120, deadline_ms=480)
    shares = {one.labels[0]: one.value for one in log.samples("deadlined_run_budget_used_ratio")}
    assert shares == {
        "steps": 0.5,
        "tool_calls[]": 1.0,
        "tokens_total": pytest.approx(15_500 / 15_000),
        "wall_ms": 0.25,
    }


def test_a_run_whose_daemon_died_counts_as_settled_and_measures_nothing(log: Log) -> None:
    log("run_settled", None, "r_1", status="internal_error", reason="recovered_after_crash")
    assert log.value("deadlined_runs_settled_total", "internal_error", "recovered_after_crash") == 1
    assert log.count("deadlined_run_seconds") == log.count("deadlined_run_tool_calls") == 0


def test_detectors_refusals_decisions_and_checks_are_counted_by_our_words(log: Log) -> None:
    log("detector_fired", None, "r_1", detector="repeat_call", level="warn", count=3)
    log("detector_fired", None, "r_1", detector="x" * 99, level="y")
    log("budget_refused", None, "r_1", dimension="tool_calls[search]", text="")
    log("budget_refused", None, "r_1", dimension="steps", text="")
    log("approval_decided", "c", "r_1", decision="approve")
    log("finish_refused", None, "r_1", refusals=1)
    assert log.value("deadlined_detectors_fired_total", "repeat_call", "warn") == 1
    assert log.value("deadlined_detectors_fired_total", "other", "other") == 1
    assert log.value("deadlined_budget_refused_total", "tool_calls[]") == 1
    assert log.value("deadlined_budget_refused_total", "steps") == 1
    assert log.value("deadlined_approvals_decided_total", "approve") == 1
    assert log.value("deadlined_finish_refused_total") == 1
