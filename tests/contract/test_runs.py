"""Runs that clients steer: the daemon keeps their time and their budget, and stops them, whoever steers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from deadlined import Client
from deadlined.runs import Run, RunStopped
from protocol._runs import StopRecord
from tests.contract.conftest import RUNS_TOOLS, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

CONFIG = f"""{RUNS_TOOLS}
[profile.short]
limits = {{ steps = 100, wall_ms = 400 }}

[profile.concluding]
limits = {{ steps = 2, model_calls = 4, wall_ms = 60_000 }}
wrapup = {{ model_calls = 1, ms = 5_000 }}

[profile.patient]
limits = {{ steps = 1_000, wall_ms = 60_000 }}
detectors = "production"

[tenant.default]
session_limits = {{ tokens_total = 15_000, tool_calls = 9 }}
user_limits = {{ "tool_calls[list_files]" = 3 }}

[price.m]
input_micros = 1_000_000
output_micros = 2_000_000
"""


def stopped(run: Run) -> StopRecord:
    """The record of a run that the daemon has stopped; waits for it."""
    return run.wait()


def events_of(run: Run) -> list[str]:
    return [event.kind for event in run.events()]


@pytest.mark.behaviour("M006")
@pytest.mark.behaviour("M084")
def test_a_run_from_its_opening_to_its_answer(client: Client) -> None:
    run = client.open_run(goal="read two pages")
    for number in (1, 2):
        run.step()
        with run.model("m", max_in=100, max_out=10) as model:
            model.usage(tokens_in=70, tokens_out=9)
        assert run.call("page", {"number": number}).content == f"text of page {number}"
    view = run.view()
    assert (view.step, view.calls, view.phase) == (2, 2, "decide")
    used = {name: view.budgets[name].used for name in ("steps", "model_calls", "tool_calls", "tokens_in", "tokens_out")}
    assert used == {"steps": 2, "model_calls": 2, "tool_calls": 2, "tokens_in": 140, "tokens_out": 18}
    assert view.budgets["cost_micros"].used == 140 + 36
    stop = run.finish("both say the same")
    assert isinstance(stop, StopRecord)
    assert (stop.outcome, stop.status, stop.reason) == ("done", "completed", "finish_accepted")
    assert stop.answer == "both say the same"
    kinds = events_of(run)
    assert kinds[0] == "run_admitted"
    assert kinds[-1] == "run_settled", "its record is in the log before anybody hears of it"


def test_the_events_of_a_run_are_numbered_without_a_gap(client: Client) -> None:
    run = client.open_run()
    for number in range(3):
        run.call("page", {"number": number})
    run.finish()
    numbers = [event.data["run_seq"] for event in run.events()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.behaviour("M025")
def test_a_decision_that_never_comes_back_ends_the_run_at_its_deadline(client: Client) -> None:
    run = client.open_run(profile="short")
    with pytest.raises(RunStopped), run.model("m", max_in=5, max_out=5):  # asked, and never heard of again
        stopped(run)
    stop = stopped(run)
    assert (stop.status, stop.reason, stop.phase) == ("budget_exhausted", "time_budget", "decide")
    assert stop.code == "DEADLINE_EXCEEDED"
    assert stop.deadline.elapsed_ms >= 400


@pytest.mark.behaviour("M035")
@pytest.mark.behaviour("M037")
def test_a_call_gets_only_what_the_run_has_left(client: Client) -> None:
    run = client.open_run(profile="short")
    with run.model("m", max_in=5, max_out=5):
        time.sleep(0.25)
    result = run.call("hangs")
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert result.timing.deadline_ms <= 150, "and not its contract's half minute"
    stop = stopped(run)
    assert (stop.reason, stop.phase) == ("time_budget", "tool")


@pytest.mark.behaviour("M026")
def test_a_check_that_never_ends_ends_with_the_run(client: Client) -> None:
    run = client.open_run(profile="short", checks=["sleep 600"])
    stop = run.finish("done")
    assert isinstance(stop, StopRecord)
    assert (stop.status, stop.reason, stop.phase) == ("budget_exhausted", "time_budget", "complete")
    assert run.view().phase == "complete", "and not what it would do now"


@pytest.mark.behaviour("M041")
def test_a_finish_is_refused_until_its_checks_pass(client: Client, tmp_path: Path) -> None:
    run = client.open_run(checks=["test -e made"], workspace=str(tmp_path))
    refused = run.finish("I made it")
    assert not isinstance(refused, StopRecord)
    assert refused.refusals == 1
    assert "test -e made" in refused.feedback
    run.call("append", {"path": str(tmp_path / "made"), "line": "x"})
    stop = run.finish("now I did")
    assert isinstance(stop, StopRecord)
    assert stop.status == "completed"
    assert events_of(run)[-2:] == ["call_ended", "run_settled"], "the log has what an end rests on before it"


@pytest.mark.behaviour("M032")
@pytest.mark.behaviour("M033")
def test_one_step_more_than_the_limit_stops_the_run(client: Client) -> None:
    run = client.open_run(limits={"steps": 3})
    for number in range(3):
        assert run.call("page", {"number": number}).status == "ok"
    result = run.call("page", {"number": 3})
    assert (result.status, result.reason, result.delivery) == ("not_executed", "budget", "not_delivered")
    stop = stopped(run)
    assert (stop.outcome, stop.status, stop.reason, stop.step) == ("stopped", "budget_exhausted", "step_budget", 3)
    assert stop.partial == [f"page: ok: text of page {number}" for number in range(3)]
    assert stop.advice == "larger_budget"


@pytest.mark.case("B104")
def test_eight_calls_at_once_with_a_budget_of_six_start_six(client: Client) -> None:
    run = client.open_run(limits={"tool_calls": 6})
    run.step()
    handles = [run.submit("naps", {"ms": 50 + number}) for number in range(8)]
    results = [handle.wait() for handle in handles]
    assert [result.status for result in results] == ["ok"] * 6 + ["not_executed"] * 2
    assert {result.reason for result in results[6:]} == {"budget"}
    stop = stopped(run)
    assert (stop.reason, stop.budgets["tool_calls"].used) == ("tool_call_budget", 6)


@pytest.mark.case("B095")
@pytest.mark.behaviour("M134")
@pytest.mark.behaviour("M052")
def test_the_same_answer_again_and_again_is_warned_of_and_then_stops_the_run(client: Client) -> None:
    run = client.open_run(profile="demo")
    results = [run.call("page", {"number": 7}) for _ in range(9)]
    statuses = [result.status for result in results]
    assert statuses == ["ok"] * 8 + ["duplicate_call"]
    assert [bool(result.notices) for result in results[:6]] == [False] * 5 + [True]
    stop = stopped(run)
    assert (stop.status, stop.reason) == ("stuck", "repeat_call")
    assert stop.detectors


@pytest.mark.behaviour("M051")
def test_a_tool_that_fails_whatever_is_asked_makes_no_progress(client: Client) -> None:
    run = client.open_run()
    for number in range(4):
        assert run.call("fails", {"number": number}).status == "error"
    stop = stopped(run)
    assert (stop.status, stop.reason, stop.step) == ("stuck", "no_progress", 4)


@pytest.mark.behaviour("M018")
@pytest.mark.behaviour("M030")
def test_a_tool_that_judges_itself_is_believed_when_it_says_what_it_reached_and_when_it_says_nothing(
    client: Client,
) -> None:
    run = client.open_run()
    for number in range(6):
        assert run.call("press", {"key": "down", "shows": f"screen {number}"}).status == "ok"
    for shows in ("", "screen 1", "", ""):
        assert run.call("press", {"key": f"another for {shows}", "shows": shows}).status == "ok"
    stop = stopped(run)
    assert (stop.status, stop.reason, stop.step) == ("stuck", "no_progress", 10)


def test_a_call_of_a_run_that_has_stopped_is_not_executed(client: Client) -> None:
    run = client.open_run()
    run.cancel()
    result = run.call("page", {"number": 1})
    assert (result.status, result.reason) == ("not_executed", "run_settled")
    unknown = client.call("page", {"number": 1}, run="r_nothing")
    assert (unknown.status, unknown.reason) == ("not_executed", "unknown_run")


@pytest.mark.parametrize(
    ("limits", "tool", "numbers", "reason"),
    [
        ({"steps": 3}, "page", range(4), "budget"),
        ({"tool_calls": 2}, "page", range(3), "budget"),
        ({"steps": 15}, "page", [7] * 9, "repeat_call"),
        ({"steps": 15}, "no_such_tool", range(6), "unknown_tool"),
    ],
)
def test_a_run_ends_behind_the_refusal_that_ends_it(
    client: Client, limits: dict[str, int], tool: str, numbers: Sequence[int], reason: str
) -> None:
    run = client.open_run(limits={**limits, "wall_ms": 30_000}, profile="demo")
    refused = [run.call(tool, {"number": number}) for number in numbers][-1]
    stop, events = stopped(run), list(run.events())
    assert (refused.reason, stop.phase) == (reason, "decide"), "nothing was running"
    assert [event.kind for event in events[-2:]] == ["call_refused", "run_settled"]
    assert events[-2].call == refused.call


def test_a_cancelled_run_ends_its_calls_and_says_so(client: Client) -> None:
    run = client.open_run()
    handle = run.submit("hangs")
    stop = run.cancel()
    assert (stop.status, stop.reason) == ("cancelled", "client")
    assert handle.wait().status == "cancelled"


def test_a_run_ends_with_its_client_unless_it_is_kept(module_daemon: TestedDaemon, client: Client) -> None:
    other = Client(module_daemon.socket)
    with other:
        context = other.run(goal="mine")
        mine = context.__enter__()
        kept = other.open_run(goal="kept")
    assert stopped(client.attach_run(mine.id)).reason == "disconnect"
    assert client.attach_run(kept.id).view().status == "running"
    client.attach_run(kept.id).cancel()


@pytest.mark.behaviour("M133")
@pytest.mark.behaviour("M012")
def test_what_is_held_back_is_enough_to_conclude(client: Client) -> None:
    run = client.open_run(profile="concluding")
    for number in (1, 2):
        run.call("page", {"number": number})
    result = run.call("page", {"number": 3})
    assert result.reason == "budget"
    with run.model("m", max_in=10, max_out=10) as model:
        model.usage(tokens_in=5, tokens_out=5)
    stop = run.finish("two of three pages")
    assert isinstance(stop, StopRecord)
    assert (stop.status, stop.reason, stop.answer) == ("budget_exhausted", "step_budget", "two of three pages")


@pytest.mark.behaviour("M104")
def test_what_a_user_may_use_counts_over_all_of_its_runs(client: Client, tmp_path: Path) -> None:
    for calls in (2, 1):
        run = client.open_run(workspace=str(tmp_path))
        assert {run.call("list_files", {}).status for _ in range(calls)} == {"ok"}
        run.finish()
    run = client.open_run(workspace=str(tmp_path))
    assert run.call("list_files", {}).reason == "budget"
    stop = stopped(run)
    assert (stop.status, stop.reason) == ("budget_exhausted", "tenant_budget")
    assert "user default/" in stop.text


@pytest.mark.behaviour("M149")
@pytest.mark.behaviour("M169")
def test_three_queries_of_4500_tokens_fit_into_a_sessions_15000_and_the_fourth_stops(client: Client) -> None:
    session = f"a-{os.getpid()}"
    for used in (4_500, 9_000, 13_500):
        run = client.open_run(session=session)
        assert run.view().budgets["tokens_total"].used == 0, "a run's own budget starts with it"
        with run.model("m", max_in=4_000, max_out=500) as model:
            model.usage(tokens_in=4_000, tokens_out=500)
        view = run.view().budgets["tokens_total"]
        assert (view.used, view.left) == (4_500, 15_000 - used)
        run.finish()
    fourth = client.open_run(session=session)
    with pytest.raises(RunStopped), fourth.model("m", max_in=4_000, max_out=500):
        pytest.fail("a model must not be asked")
    stop = stopped(fourth)
    assert (stop.status, stop.reason) == ("budget_exhausted", "token_budget")
    assert "13500 of 15000 used" in stop.text
    assert client.open_run(session=f"b-{os.getpid()}").view().budgets["tokens_total"].left == 15_000


def test_a_limit_looser_than_the_profiles_is_refused_and_says_whose_it_is(client: Client) -> None:
    with pytest.raises(Exception, match="looser than 25 of profile default"):
        client.open_run(limits={"steps": 26})


@pytest.mark.case("B114")
def test_fifty_calls_at_once_are_charged_fifty_times(client: Client, tmp_path: Path) -> None:
    run = client.open_run(profile="patient")
    run.step()
    target = tmp_path / "marks"
    handles = [run.submit("append", {"path": str(target), "line": str(number)}) for number in range(50)]
    assert {handle.wait().status for handle in handles} == {"ok"}
    charged = sum((event.data.get("charge") or {}).get("tool_calls", 0) for event in run.events())
    assert (run.view().budgets["tool_calls"].used, charged, len(target.read_text().splitlines())) == (50, 50, 50)
    run.cancel()


@pytest.mark.behaviour("M065")
def test_output_that_goes_beyond_what_is_left_is_cut_off_and_stops_the_run(client: Client) -> None:
    run = client.open_run(limits={"output_bytes": 3_000})
    assert run.call("shell", {"argv": ["head", "-c", "1000", "/dev/zero"]}).status == "ok"
    assert run.view().budgets["output_bytes"].left == 2_000
    result = run.call("shell", {"argv": ["sh", "-c", "yes; sleep 600"]})
    assert (result.status, result.reason) == ("killed", "output_limit")
    stop = stopped(run)
    assert (stop.status, stop.reason) == ("budget_exhausted", "output_budget")
    assert stop.budgets["output_bytes"].used >= 3_000


def test_a_call_that_comes_to_its_own_limit_of_output_stops_no_run(client: Client) -> None:
    run = client.open_run(limits={"output_bytes": 1 << 20})
    result = run.call("shell", {"argv": ["sh", "-c", "yes; sleep 600"]}, max_output_bytes=1_000)
    assert (result.status, result.reason) == ("killed", "output_limit")
    assert run.view().status == "running"
    run.cancel()


def test_where_no_output_is_left_no_call_begins(client: Client) -> None:
    run = client.open_run(limits={"output_bytes": 10})
    assert run.call("shell", {"argv": ["printf", "0123456789"]}).status == "ok"
    result = run.call("page", {"number": 1})
    assert (result.status, result.reason, result.delivery) == ("not_executed", "budget", "not_delivered")
    assert stopped(run).reason == "output_budget"


def test_a_run_that_was_cut_off_by_a_crash_says_so_and_its_session_has_paid_once(tmp_path: Path) -> None:
    with open_daemons() as start:
        first = start(CONFIG)
        with Client(first.socket) as client:
            run = client.open_run(session="s")
            run.call("page", {"number": 1})
            client.open_run(session="s").cancel()  # what the session stands at is on the disk, with that call in it
            run.call("append", {"path": str(tmp_path / "f"), "line": "x"})  # synced, and what came before it with it
        first.kill()
        second = start(CONFIG, after=first)
        with Client(second.socket) as client:
            stop = client.attach_run(run.id).wait()
            left = client.open_run(session="s").view().budgets["tool_calls"].left
    assert (stop.status, stop.reason) == ("internal_error", "recovered_after_crash")
    assert left == 9 - 2
