"""Calls that are tried again by the daemon, with real workers: how often, as whom, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined import Client
from protocol._events import Event
from tests.contract.cases.conftest import wait_until
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

HERE = Path(__file__).parent
CONFIG = f"""
[daemon]
shutdown_drain_ms = 100
[tool.flaky]
kind = "python"
module = "retry_tools"
path = "{HERE}"
[tool.flaky.retry]
base_ms = 10
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[TestedDaemon]:
    with open_daemons() as start:
        yield start(CONFIG)


@pytest.fixture
def client(daemon: TestedDaemon) -> Iterator[Client]:
    with Client(daemon.socket) as client:
        yield client


@pytest.fixture
def ledger(open_directory: Path) -> Path:
    """Where attempts are counted, by the tool itself."""
    return open_directory / "ledger"


def attempts(ledger: Path) -> list[str]:
    """The key of each, in order."""
    return ledger.read_text().splitlines()


@pytest.mark.behaviour("M043")
@pytest.mark.behaviour("M113")
@pytest.mark.behaviour("M166")
def test_a_flaky_read_only_tool_succeeds_on_the_third_attempt_as_one_call(client, ledger):
    result = client.call("flaky", {"ledger": str(ledger), "failures": 2}, deadline_ms=60_000)
    assert (result.status, result.content, result.attempts) == ("ok", 3, 3)
    assert attempts(ledger) == [result.idempotency_key] * 3
    assert result.output.view == "attempt 3\n"  # and nothing of the others, no traceback
    said = [(notice.detector, notice.attempt) for notice in result.notices]
    assert said == [("retry", 1), ("retry", 2)]
    assert all("HTTP 429" in notice.text and "\n" not in notice.text for notice in result.notices)

    def logged() -> list[Event]:
        return list(client.events(call=result.call))

    wait_until(lambda: "call_ended" in [event.kind for event in logged()], "its end is not in the log")
    scheduled = [event for event in logged() if event.kind == "retry_scheduled"]
    assert [event.data["attempt"] for event in scheduled] == [2, 3]
    assert [event.data["class"] for event in scheduled] == ["transient_tool"] * 2


@pytest.mark.behaviour("M043")
def test_one_that_never_recovers_fails_for_good_after_three_attempts(client, ledger):
    result = client.call("flaky", {"ledger": str(ledger)}, deadline_ms=60_000)
    assert (result.status, result.error.class_, result.attempts) == ("error", "transient_tool", 3)
    assert len(attempts(ledger)) == 3
    assert result.output.view.startswith("attempt 3\n")


@pytest.mark.behaviour("M044")
@pytest.mark.behaviour("M112")
@pytest.mark.parametrize("class_", ["argument", "policy", "auth", "missing_input", "tool"])
def test_what_another_attempt_cannot_change_runs_once_and_is_told_as_it_was_said(client, ledger, class_):
    result = client.call("flaky", {"ledger": str(ledger), "failures": 9, "class_": class_}, deadline_ms=60_000)
    assert (len(attempts(ledger)), result.attempts) == (1, 1)
    assert result.error.class_ == class_
    assert result.error.message == "HTTP 429 from the other side, 1 times now"


@pytest.mark.behaviour("M047")
@pytest.mark.behaviour("M046")
def test_a_red_test_runs_once_costs_a_step_and_is_an_ordinary_result(client, ledger):
    run = client.open_run()
    for _ in range(2):
        run.step()
        argv = ["sh", "-c", f"echo ran >> {ledger}; echo 'FAILED 503'; exit 1"]
        result = run.call("shell", {"argv": argv}, deadline_ms=60_000)
        assert (result.status, result.error.class_, result.exit.code) == ("error", "feedback", 1)
        assert (result.attempts, result.next_action) == (1, None)
    view = run.view()
    assert (view.status, view.step) == ("running", 2)
    assert (view.budgets["retries"].used, view.budgets["tool_calls"].used) == (0, 2)
    assert attempts(ledger) == ["ran"] * 2


def test_what_may_have_been_done_is_not_done_again(client, ledger):
    result = client.call("writes", {"ledger": str(ledger)}, deadline_ms=60_000)
    assert (result.status, result.delivery, len(attempts(ledger))) == ("error", "failed_definite", 1)


def test_an_idempotent_call_that_lost_its_worker_goes_to_another_under_the_same_key(client, ledger):
    result = client.call("dies_once", {"ledger": str(ledger)}, deadline_ms=60_000)
    assert (result.status, result.content, result.attempts) == ("ok", 2, 2)
    assert attempts(ledger) == [result.idempotency_key] * 2


@pytest.mark.case("B034")
def test_b034_a_call_that_always_needs_too_much_memory_is_tried_twice_and_ends_for_memory(client, daemon, ledger):
    if "memory" not in (daemon.directory / "daemon.log").read_text():
        pytest.skip("this host gives no memory controller to the tests' uid: there is no limit to reach")
    result = client.call("always_too_much", {"ledger": str(ledger)}, deadline_ms=30_000)
    assert (result.status, result.reason, result.attempts) == ("killed", "memory_limit", 2), result
    assert len(attempts(ledger)) == 2


@pytest.mark.behaviour("M088")
def test_a_wait_that_ends_behind_the_deadline_is_not_begun(client, ledger):
    result = client.call("patient", {"ledger": str(ledger)}, deadline_ms=20_000)
    assert (result.status, result.error.message, result.attempts) == ("error", "come back later", 1)
    assert result.timing.duration_ms < 20_000
    assert "no time left" in result.notices[0].text


@pytest.mark.behaviour("M088")
def test_a_cancel_ends_the_wait_and_frees_what_the_call_held(client, ledger):
    run = client.open_run()
    handle = run.submit("patient", {"ledger": str(ledger)}, deadline_ms=600_000)
    wait_until(lambda: any(event.kind == "retry_scheduled" for event in client.events(call=handle.call)), "no wait")
    assert all(row.pid is None for row in client.processes() if row.call == handle.call)
    behind = run.submit("writes", {"ledger": str(ledger)}, deadline_ms=60_000)
    assert len(attempts(ledger)) == 1
    handle.cancel()
    result = handle.wait()
    assert (result.status, result.reason, result.delivery) == ("cancelled", "client", "failed_definite")
    assert behind.wait().status == "error"
    assert len(attempts(ledger)) == 2


def test_each_retry_of_a_run_is_paid_from_its_budget_before_it_happens(client, ledger):
    run = client.open_run(limits={"retries": 1, "wall_ms": 60_000})
    result = run.call("flaky", {"ledger": str(ledger)})
    assert (result.status, result.error.message, len(attempts(ledger))) == (
        "error",
        "HTTP 429 from the other side, 2 times now",
        2,
    )
    assert [notice.text for notice in result.notices][-1] == "not tried again: its run has no retry left"
    stop = run.wait()
    assert (stop.status, stop.reason, stop.budgets["retries"].used) == ("budget_exhausted", "retry_budget", 1)
    (event,) = [event for event in run.events() if event.kind == "retry_scheduled"]
    assert (event.data["charge"], event.data["attempt"]) == ({"retries": 1}, 2)


def test_a_daemon_that_stops_does_not_wait_for_a_call_that_sleeps(client, daemon, ledger):
    """The last one of this module: the others have no daemon after it. That it leaves nothing is seen at its end."""
    handle = client.submit("patient", {"ledger": str(ledger)}, deadline_ms=600_000)
    wait_until(lambda: any(event.kind == "retry_scheduled" for event in client.events(call=handle.call)), "no wait")
    daemon.process.terminate()
    result = handle.wait()
    assert (result.status, result.reason, result.delivery) == ("cancelled", "shutdown", "failed_definite")
    daemon.process.wait(60)
