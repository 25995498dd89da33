"""Loops that were missed, and work that was taken for one: what a run says to both, on the real daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from deadlined import Client
from protocol import CallResult
from tests.contract.conftest import RUNS_TOOLS

pytestmark = pytest.mark.contract

CONFIG = f"""{RUNS_TOOLS}
[profile.roomy]
limits = {{ steps = 1_000, wall_ms = 120_000 }}
"""


def levels(results: list[CallResult]) -> set[str]:
    return {notice.level for result in results for notice in result.notices}


@pytest.mark.case("B095")
def test_identical_answers_are_warned_of_and_stopped_though_they_are_successes(client: Client) -> None:
    run = client.open_run(profile="demo")
    results = [run.call("page", {"number": 7}) for _ in range(15)]
    assert [result.status for result in results[:8]] == ["ok"] * 8
    assert [levels([result]) for result in results[4:7]] == [set(), {"warn"}, {"warn"}]
    stop = run.wait()
    assert (stop.status, stop.reason, stop.step) == ("stuck", "repeat_call", 9)
    assert stop.budgets["tool_calls"].used == 8, "what is blocked costs no call"


@pytest.mark.case("B096")
def test_one_write_in_two_spellings_at_once_is_one_call(client: Client, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    run = client.open_run()
    run.step()
    spellings = ('{"path": %s, "line": "x"}', '{ "line" : "x",\n "path" : %s }')
    handles = [run.submit("slow_append", text % f'"{path}"') for text in spellings]
    results = [handle.wait() for handle in handles]
    assert results[0].call == results[1].call, "the second is the delivery of the first"
    assert Path(path).read_text(encoding="utf-8") == "x\n"
    run.cancel()


@pytest.mark.case("B097")
def test_repetitive_work_with_progress_is_left_alone(client: Client, tmp_path: Path) -> None:
    run = client.open_run(profile="roomy")
    results = [run.call("page", {"number": number}) for number in range(60)]
    for number in range(40):
        results.append(run.call("append", {"path": str(tmp_path / f"file{number}"), "line": "edited"}))
        results.append(run.call("count_lines", {"directory": str(tmp_path)}))
    assert {result.status for result in results} == {"ok"}
    assert levels(results) == set()
    run.cancel()


@pytest.mark.case("B098")
def test_one_answer_to_different_writes_is_no_repeat(client: Client, tmp_path: Path) -> None:
    run = client.open_run()
    results = [run.call("append", {"path": str(tmp_path / f"{item}"), "line": "tag"}) for item in (1, 2, 3)]
    assert [result.content for result in results] == [1, 1, 1]
    assert levels(results) == set()
    run.cancel()


@pytest.mark.case("B099")
def test_a_pair_in_turn_is_stopped_as_a_pair(client: Client) -> None:
    run = client.open_run(profile="ping")
    for turn in range(20):
        run.call("page", {"number": turn % 2})
    stop = run.wait()
    assert (stop.status, stop.reason) == ("stuck", "ping_pong")


@pytest.mark.case("B100")
def test_after_a_block_other_work_leads_out(client: Client, tmp_path: Path) -> None:
    run = client.open_run(profile="blocking")
    statuses = [run.call("page", {"number": 1}).status for _ in range(4)]
    assert statuses == ["ok", "ok", "duplicate_call", "duplicate_call"]
    for number in range(10, 14):
        assert run.call("page", {"number": number}).status == "ok", "what was blocked is held against no other call"
    assert run.call("append", {"path": str(tmp_path / "file"), "line": "x"}).status == "ok"
    again = run.call("page", {"number": 1})
    assert (again.status, again.notices) == ("ok", []), "after a change it is another situation"
    assert run.view().budgets["tool_calls"].used == 2 + 4 + 1 + 1
    run.cancel()


@pytest.mark.case("B101")
def test_cheap_calls_in_between_hide_no_repeat(client: Client) -> None:
    run = client.open_run(profile="roomy")
    for _ in range(12):
        run.call("fails", {"number": 1})
        run.call("now")
    stop = run.wait()
    assert (stop.status, stop.reason) == ("stuck", "repeat_error")


@pytest.mark.case("B102")
def test_a_call_that_costs_its_whole_deadline_may_be_repeated_less_often(client: Client) -> None:
    attempts = {}
    for tool, arguments in (("hangs", {}), ("fails", {"number": 1})):
        run = client.open_run(profile="roomy")
        results = [run.call(tool, arguments, deadline_ms=150) for _ in range(6)]
        attempts[tool] = sum(result.status not in ("duplicate_call", "not_executed") for result in results)
        assert run.wait().reason == "repeat_error"
    assert attempts["hangs"] < attempts["fails"]


CONFIG += """
[detectors.ping]
no_progress = { stop_after = 30 }
breaker = { stop_after = 30 }
repeat_call = { warn_after = 28, block_after = 29, stop_after = 30 }

[detectors.blocking]
no_progress = { stop_after = 30 }
breaker = { stop_after = 30 }
repeat_call = { warn_after = 1, block_after = 2, stop_after = 30 }

[profile.blocking]
limits = { steps = 1_000, wall_ms = 120_000 }
detectors = "blocking"

[profile.ping]
limits = { steps = 1_000, wall_ms = 120_000 }
detectors = "ping"
"""
