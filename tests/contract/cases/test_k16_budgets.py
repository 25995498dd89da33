"""Budgets, deadlines and clocks, as public reports found them broken."""

from __future__ import annotations

import itertools

import pytest

from deadlined import Client
from deadlined.runs import RunStopped
from protocol._runs import StopRecord
from tests.contract.conftest import RUNS_TOOLS

pytestmark = pytest.mark.contract

CONFIG = f"""{RUNS_TOOLS}
[tool.chatty]
kind = "command"
argv = ["sh", "-c", "while :; do echo line; sleep 0.1; done"]
approval = "never"
idle_timeout_ms = 500

[tool.silent]
kind = "command"
argv = ["sleep", "60"]
approval = "never"
idle_timeout_ms = 500
"""


@pytest.mark.case("B105")
@pytest.mark.behaviour("M036")
def test_each_phase_that_hangs_ends_with_the_run_and_is_named(client: Client) -> None:
    deciding = client.open_run(deadline_ms=300)
    with pytest.raises(RunStopped), deciding.model("m"):
        deciding.wait()
    calling = client.open_run(deadline_ms=300)
    assert calling.call("hangs").reason == "time_budget"
    checking = client.open_run(deadline_ms=300, checks=["sleep 60"])
    checked = checking.finish("done")
    assert isinstance(checked, StopRecord)
    stops = [deciding.wait(), calling.wait(), checked]
    assert [stop.phase for stop in stops] == ["decide", "tool", "complete"]
    assert {stop.reason for stop in stops} == {"time_budget"}
    assert {stop.deadline.deadline_ms for stop in stops} == {300}, "the unit is in the name"


@pytest.mark.case("B106")
@pytest.mark.behaviour("M040")
@pytest.mark.parametrize("tool", ["sleeps_in_c", "spins_in_c", "backtracks"])
def test_code_that_never_gives_up_the_interpreter_dies_on_time(client: Client, tool: str) -> None:
    result = client.call(tool, deadline_ms=400)
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert result.kill is not None
    assert result.kill.confirmed


@pytest.mark.case("B108")
def test_progress_feeds_the_idle_limit_and_never_moves_the_deadline(client: Client) -> None:
    chatty = client.call("chatty", deadline_ms=1_500)
    assert (chatty.status, chatty.reason) == ("killed", "time_budget")
    silent = client.call("silent", deadline_ms=10_000)
    assert (silent.status, silent.reason) == ("killed", "idle")


ODD = [0, -1, 1e-9, 1e10, 2**31, 2**63 - 1, 1e300, float("inf"), "5", True]


@pytest.mark.case("B111")
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_deadline_is_refused_with_what_is_allowed(client: Client, odd: object) -> None:
    result = client.call("page", {"number": 1}, deadline_ms=odd)  # type: ignore[arg-type]  # that is the case
    assert (result.status, result.reason) == ("not_executed", "invalid_arguments")
    assert result.error is not None
    assert "whole number of milliseconds" in result.error.message or "ceiling" in result.error.message


@pytest.mark.case("B112")
def test_a_budget_belongs_to_its_run_and_its_gauge_is_right_at_each_reading(client: Client) -> None:
    one, two = client.open_run(limits={"tool_calls": 5}), client.open_run(limits={"tool_calls": 5})
    for used in itertools.islice(itertools.count(1), 3):
        one.call("page", {"number": used})
        assert one.view().budgets["tool_calls"].used == used
        assert two.view().budgets["tool_calls"].used == 0
    one.finish("done")
    again = client.open_run(limits={"tool_calls": 5})
    assert again.view().budgets["tool_calls"].left == 5, "a new run starts at nothing"
    two.cancel()
    again.cancel()


@pytest.mark.case("B113")
def test_quiet_is_not_dead(client: Client) -> None:
    result = client.call("shell", {"argv": ["sh", "-c", "sleep 1.2; echo done"]}, deadline_ms=20_000)
    assert (result.status, result.output.view) == ("ok", "done\n")
