"""Calls beside each other, and in line, as public reports found them mixed up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.cases.conftest import wait_until
from tests.contract.conftest import RUNS_TOOLS, open_daemons

pytestmark = pytest.mark.contract

CONFIG = f"""
[approval]
undeclared = "on_write"

[daemon]
in_flight = 1

{RUNS_TOOLS}"""


@pytest.fixture(scope="module")
def wide_client() -> Iterator[Client]:
    """Where three may run at once."""
    with open_daemons() as start, Client(start(CONFIG.replace("in_flight = 1", "in_flight = 8")).socket) as client:
        yield client


@pytest.mark.case("B115")
def test_a_deadline_in_the_queue_charges_nothing_and_is_no_tools_failure(client: Client) -> None:
    run = client.open_run()
    run.step()
    first = run.submit("naps", {"ms": 900})
    wait_until(lambda: any(row.state == "busy" for row in client.processes()), "the first runs")
    waiting = [run.submit("naps", {"ms": number}, deadline_ms=10_000) for number in (1, 2)]
    hurried = run.submit("naps", {"ms": 3}, deadline_ms=200)
    result = hurried.wait()
    assert (result.status, result.reason, result.phase) == ("not_executed", "time_budget", "queue")
    assert result.delivery == "not_delivered"
    assert [handle.wait().status for handle in (first, *waiting)] == ["ok"] * 3
    assert run.view().budgets["tool_calls"].used == 3
    run.cancel()


@pytest.mark.case("B116")
def test_who_holds_a_place_is_visible_and_waiting_for_a_person_holds_none(client: Client, tmp_path: Path) -> None:
    waits = client.call("write_asking", {"path": str(tmp_path / "x")})
    assert waits.status == "waiting_for_approval"
    held = client.submit("naps", {"ms": 60_000}, deadline_ms=600)
    wait_until(lambda: [row.call for row in client.processes() if row.state == "busy"] == [held.call], "it is seen")
    (row,) = [row for row in client.processes() if row.state == "busy"]
    assert row.remaining_ms is not None
    assert row.remaining_ms <= 600
    assert client.call("naps", {"ms": 1}, deadline_ms=20_000).status == "ok", "every place has an end"
    assert held.wait().reason == "time_budget"


@pytest.mark.case("B117")
@pytest.mark.parametrize("middle", ["raises", "is killed", "is cancelled"])
def test_of_three_at_once_one_failure_takes_no_siblings_result(wide_client: Client, middle: str) -> None:
    run = wide_client.open_run()
    run.step()
    limit = 200 if middle == "is killed" else 20_000
    second = ("fails", {"number": 1}) if middle == "raises" else ("hangs", {})
    handles = [
        run.submit("naps", {"ms": 100}),
        run.submit(*second, deadline_ms=limit),
        run.submit("naps", {"ms": 500}),
    ]
    if middle == "is cancelled":
        handles[1].cancel()
    results = [handle.wait() for handle in handles]
    assert [result.call for result in results] == [handle.call for handle in handles]
    wanted = {"raises": "error", "is killed": "killed", "is cancelled": "cancelled"}[middle]
    assert [result.status for result in results] == ["ok", wanted, "ok"]
    run.cancel()
