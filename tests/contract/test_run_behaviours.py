"""What must hold of loops, row by row, on the running product: a client steers, the daemon bounds."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client
from deadlined.runs import Run, RunStopped
from protocol._runs import RunStatus, StopRecord
from tests.contract.conftest import RUNS_TOOLS, TestedDaemon

pytestmark = pytest.mark.contract

CONFIG = f"""{RUNS_TOOLS}
[tool.chaos]
kind = "python"
module = "toolworkers.chaos"

[[policy]]
tool = "page"
when = {{ "number" = "66*" }}
action = "deny"
reason = "not that page"
"""


def opened(client: Client, **options: Any) -> Run:
    """A run that a broken product leaves open for half a minute at most."""
    return client.open_run(**{"deadline_ms": 30_000, **options})


@pytest.mark.behaviour("M001")
@pytest.mark.behaviour("M103")
def test_a_client_that_never_stops_is_stopped(client: Client) -> None:
    run = opened(client, limits={"steps": 4})
    answers = [run.call("now") for _ in range(20)]
    assert [answer.status for answer in answers] == ["ok"] * 4 + ["not_executed"] * 16
    with pytest.raises(RunStopped):
        run.step()
    assert run.wait().reason == "step_budget"


@pytest.mark.behaviour("M004")
def test_every_result_says_how_it_ended_and_how_long_it_took(client: Client) -> None:
    for tool, status, code in (("now", "ok", None), ("fails", "error", "refused"), ("hangs", "killed", "deadline")):
        arguments = {"number": 1} if tool == "fails" else {}
        result = client.call(tool, arguments, deadline_ms=300)
        assert result.status == status
        assert (result.error and result.error.code) == code
        assert result.timing.duration_ms >= 0
        assert result.summary


@pytest.mark.behaviour("M005")
def test_tools_that_always_fail_find_nothing_or_hang_can_be_had(client: Client) -> None:
    ends = {tool: {client.call(tool).status for _ in range(2)} for tool in FAKES}
    assert ends == dict(zip(FAKES, ({"error"}, {"no_result"}, {"killed"}), strict=True))


FAKES = ("chaos_constant_error", "chaos_constant_empty", "chaos_constant_timeout")


@pytest.mark.behaviour("M007")
def test_a_run_knows_its_real_time(client: Client) -> None:
    run = opened(client)
    began = time.monotonic()
    run.call("naps", {"ms": 200})
    view = run.view()
    assert 200 <= view.deadline.elapsed_ms <= (time.monotonic() - began) * 1_000 + 50
    run.cancel()


@pytest.mark.behaviour("M013")
@pytest.mark.behaviour("M053")
@pytest.mark.behaviour("M054")
def test_time_that_is_up_ends_the_run_and_what_was_made_is_kept(client: Client) -> None:
    run = opened(client, deadline_ms=1_500)
    run.call("shell", {"argv": ["sh", "-c", "echo found it"]})
    run.call("shell", {"argv": ["sh", "-c", "echo partial > notes; echo half; sleep 60"]}, deadline_ms=60_000)
    stop = run.wait()
    assert (stop.status, stop.reason, stop.phase, stop.step) == ("budget_exhausted", "time_budget", "tool", 2)
    assert 1_500 <= stop.deadline.elapsed_ms < 10_000
    assert stop.partial[0].startswith("shell: ok: found it")
    files = {artefact.path: artefact for artefact in stop.artefacts}
    outputs = [Path(path).read_text(encoding="utf-8") for path in files if Path(path).is_file()]
    assert outputs == ["found it\n", "half\n"]
    (kept,) = [Path(path) for path in files if Path(path).is_dir()]
    assert (kept / "notes").read_text(encoding="utf-8") == "partial\n"


@pytest.mark.behaviour("M023")
def test_with_nothing_left_nothing_begins(client: Client, tmp_path: Path) -> None:
    run = opened(client, deadline_ms=200)
    time.sleep(0.3)
    result = run.call("append", {"path": str(tmp_path / "late"), "line": "x"})
    assert (result.status, result.reason, result.delivery) == ("not_executed", "time_budget", "not_delivered")
    assert not (tmp_path / "late").exists()
    with pytest.raises(RunStopped), run.model("m"):
        pytest.fail("the model was asked")


@pytest.mark.behaviour("M024")
def test_a_tool_is_told_that_its_time_is_up(client: Client) -> None:
    result = client.call("heeds", deadline_ms=600)
    assert result.output.view.strip().endswith("told")


@pytest.mark.behaviour("M028")
def test_a_tools_own_timeout_is_an_error_of_the_tool(client: Client) -> None:
    run = opened(client)
    result = run.call("chaos_raise", {"kind": "TimeoutError"})
    assert (result.status, result.reason) == ("error", None)
    assert run.view().status == "running"
    run.cancel()


@pytest.mark.behaviour("M034")
@pytest.mark.behaviour("M038")
@pytest.mark.behaviour("M039")
def test_a_program_that_hangs_is_dead_at_the_deadline_and_the_record_says_by_what(
    client: Client, tmp_path: Path
) -> None:
    beat = tmp_path / "beat"
    script = f"while :; do date +%s%N > {beat}; sleep 0.02; done"
    run = opened(client, deadline_ms=700)
    result = run.call("shell", {"argv": ["sh", "-c", f"trap '' TERM; {script}"]})
    assert (result.status, result.exit and result.exit.signal) == ("killed", "SIGKILL")
    last = beat.read_text(encoding="utf-8")
    time.sleep(0.2)
    assert beat.read_text(encoding="utf-8") == last, "nothing of it works on after the answer"
    assert run.wait().reason == "time_budget"


@pytest.mark.behaviour("M042")
@pytest.mark.behaviour("M102")
def test_done_exhausted_and_blocked_are_told_apart_with_what_would_help(client: Client) -> None:
    done, exhausted, blocked = opened(client), opened(client, limits={"tool_calls": 0}), opened(client)
    done.finish("it is so")
    exhausted.call("now")
    blocked.call("page", {"number": 66})
    stops = [run.wait() for run in (done, exhausted, blocked)]
    assert [stop.status for stop in stops] == ["completed", "budget_exhausted", "blocked"]
    assert [stop.advice for stop in stops] == ["none", "larger_budget", "never"]
    assert "larger budget" in stops[1].text


@pytest.mark.behaviour("M063")
def test_the_names_of_statuses_that_callers_know_are_there() -> None:
    known = {"completed", "budget_exhausted", "waiting_for_approval", "tool_failed", "provider_failed", "cancelled"}
    assert known <= {str(status) for status in RunStatus}


@pytest.mark.behaviour("M065")
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("steps", "step_budget"),
        ("model_calls", "model_call_budget"),
        ("tool_calls", "tool_call_budget"),
        ("tool_calls[prints]", "per_tool_budget"),
        ("output_bytes", "output_budget"),
        ("tokens_total", "token_budget"),
    ],
)
def test_each_dimension_ends_a_run_by_itself(client: Client, limit: str, reason: str) -> None:
    run = opened(client, limits={limit: 2})
    with pytest.raises(RunStopped) as stopped:  # noqa: PT012  # which round it is differs
        for number in range(5):
            run.step()
            with run.model("m", max_in=1, max_out=0) as model:
                model.usage(tokens_in=1, tokens_out=0)
            run.call("prints", {"number": number})
    assert stopped.value.stop.reason == reason


@pytest.mark.behaviour("M069")
def test_what_fails_is_charged_and_what_never_ran_is_not(client: Client) -> None:
    run = opened(client, limits={"tool_calls": 3})
    assert run.call("fails", {"number": 1}).status == "error"
    assert run.call("hangs", deadline_ms=200).status == "killed"
    assert run.call("page", {"number": "no number"}).status == "not_executed"
    assert run.view().budgets["tool_calls"].used == 2
    run.cancel()


@pytest.mark.behaviour("M082")
@pytest.mark.behaviour("M073")
def test_a_call_is_judged_in_one_order(client: Client) -> None:
    run = opened(client, limits={"tool_calls": 0})
    malformed = run.call("page", '{"number": "66"}')
    assert malformed.reason == "invalid_arguments", "arguments before policy"
    denied = run.call("page", {"number": 66})
    assert denied.reason == "policy_denied", "policy before the budget"
    assert run.wait().status == "blocked"


@pytest.mark.behaviour("M090")
@pytest.mark.behaviour("M140")
def test_invented_tools_are_answered_and_end_the_run_after_a_while(client: Client) -> None:
    run = opened(client)
    run.step()  # round for round it would end sooner, for no progress
    answers = [run.call(f"invented_{number}") for number in range(6)]
    first = answers[0]
    assert (first.status, first.reason) == ("not_executed", "unknown_tool")
    assert first.error is not None
    assert "append" in first.error.message, "those that there are"
    stop = run.wait()
    assert (stop.status, stop.reason) == ("tool_failed", "unknown_tool")


@pytest.mark.behaviour("M093")
@pytest.mark.behaviour("M139")
def test_cut_arguments_are_never_completed_and_a_fence_is_taken_off(client: Client, tmp_path: Path) -> None:
    run = opened(client)
    path = tmp_path / "file"
    cut = run.call("append", f'{{"path": "{path}", "line": "half of i')
    assert (cut.status, cut.reason) == ("not_executed", "invalid_arguments")
    assert cut.error is not None
    assert "cut off" in cut.error.message
    assert not path.exists()
    fenced = run.call("append", f'```json\n{{"path": "{path}", "line": "whole"}}\n```')
    assert fenced.status == "ok"
    run.cancel()


@pytest.mark.behaviour("M099")
@pytest.mark.behaviour("M100")
def test_nothing_found_a_failure_and_a_wrong_argument_are_three_answers(client: Client) -> None:
    nothing = client.call("chaos_constant_empty")
    failed = client.call("hangs", deadline_ms=200)
    wrong = client.call("page", {"numbers": 1})
    assert [nothing.status, failed.status, wrong.status] == ["no_result", "killed", "not_executed"]
    assert nothing.next_action
    assert "other words" in nothing.next_action
    assert [nothing.retryable, failed.retryable, wrong.retryable] == [False, True, False]
    assert wrong.next_action


@pytest.mark.behaviour("M142")
def test_a_call_that_says_no_limit_has_ten_seconds(client: Client) -> None:
    assert client.call("now").timing.deadline_ms == 10_000


@pytest.mark.behaviour("M157")
def test_an_attempt_is_recorded_with_its_call_its_time_and_its_result(client: Client) -> None:
    run = opened(client)
    result = run.call("page", {"number": 1})
    run.cancel()
    events = {event.kind: event for event in run.events()}
    begun, ended = events["call_validated"], events["call_ended"]
    assert begun.call == ended.call == result.call
    assert begun.data["fingerprint"] == result.fingerprint
    assert begun.at_ms <= ended.at_ms
    assert ended.data["status"] == "ok"


@pytest.mark.behaviour("M162")
def test_the_sixth_identical_call_is_warned_of_and_one_who_heeds_it_answers(client: Client) -> None:
    heeding = opened(client, profile="demo")
    for number in range(1, 7):
        result = heeding.call("page", {"number": 1})
        assert bool(result.notices) == (number == 6)
    assert isinstance(heeding.finish("it says the same"), StopRecord)
    ordinary = opened(client, profile="demo")
    assert not ordinary.call("page", {"number": 1}).notices
    assert ordinary.finish("page 1").status == "completed"
    deaf = opened(client, profile="demo")
    for _ in range(12):
        deaf.call("page", {"number": 1})
    assert deaf.wait().status == "stuck"


@pytest.mark.behaviour("M019")
def test_the_numbers_of_the_reference_are_the_defaults(client: Client) -> None:
    run = client.open_run()
    view = run.view()
    assert (view.budgets["steps"].limit, view.deadline.deadline_ms) == (25, 480_000)
    run.cancel()
    narrower = opened(client, limits={"steps": 3}, deadline_ms=1_000)
    assert (narrower.view().budgets["steps"].limit, narrower.view().deadline.deadline_ms) == (3, 1_000)
    narrower.cancel()


@pytest.mark.behaviour("M132")
def test_one_search_in_forty_wordings_is_stopped_long_before(client: Client) -> None:
    run = opened(client)
    answers = [run.call("lookup", {"query": f"refund policy {number}"}) for number in range(40)]
    executed = sum(answer.status == "ok" for answer in answers)
    assert executed <= 10
    assert run.wait().status == "stuck"


def test_the_daemon_is_as_it_was(module_daemon: TestedDaemon) -> None:
    assert os.path.exists(module_daemon.socket)
    with Client(module_daemon.socket) as connected:
        assert connected.status().calls_in_flight == 0


@pytest.mark.behaviour("M119")
def test_two_rounds_without_anything_new_ask_a_person_and_go_on_with_the_answer(client: Client) -> None:
    run = opened(client, profile="qa_readonly")
    assert run.call("lookup", {"query": "a"}).status == "ok"
    for query in ("b", "c"):
        run.call("lookup", {"query": query})
    stop = run.wait()
    assert (stop.outcome, stop.status, stop.reason) == ("suspended", "needs_input", "no_new_evidence")
    assert run.call("lookup", {"query": "d"}).status == "not_executed"
    assert run.resume("look for the order number").status == "running"
    assert run.call("page", {"number": 1}).status == "ok"
    run.cancel()  # and with its stop everything before it is in the log
    assert [event.data["answer"] for event in run.events() if event.kind == "run_resumed"] == [
        "look for the order number"
    ]


def test_what_is_out_of_bounds_ends_the_run(client: Client, tmp_path: Path) -> None:
    run = opened(client, workspace=str(tmp_path))
    assert run.call("read_file", {"path": "/etc/passwd"}).reason == "sandbox_denied"
    stop = run.wait()
    assert (stop.status, stop.reason, stop.advice) == ("blocked", "sandbox_denied", "never")
