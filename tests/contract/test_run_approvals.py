"""Runs that wait for a person, go on, or end by the answer: nothing of them happens twice, nothing is forgotten."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deadlined import Client
from deadlined.runs import Run
from protocol import CallResult
from tests.contract.conftest import TestedDaemon
from tests.contract.test_approvals import ASKING, TOOLS, lines, outcome, refused

pytestmark = pytest.mark.contract

RULES = """
[[policy]]
tool = "*"
when = { line = "*forbidden*" }
action = "deny"
"""
CONFIG = ASKING + TOOLS + RULES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "written"


def ask(run: Run, file: Path, line: str = "once", tool: str = "undeclared") -> str:
    """Call a tool that asks, and wait until the run waits; the approval."""
    result = run.call(tool, {"line": line, "file": str(file)})
    assert (result.status, result.reason, result.run) == ("waiting_for_approval", "approval_required", run.id)
    stop = run.wait()
    assert (stop.outcome, stop.status, stop.reason) == ("suspended", "waiting_for_approval", "approval_required")
    assert stop.resumable
    assert result.approval in stop.approvals
    assert result.approval is not None
    return result.approval


def used(run: Run, *names: str) -> list[int]:
    view = run.view()
    return [view.budgets[name].used for name in names]


@pytest.mark.behaviour("M116")
def test_what_is_about_to_be_done_is_on_the_disk_before_a_person_is_asked_and_its_result_after(
    client: Client, module_daemon: TestedDaemon, file: Path
) -> None:
    run = client.open_run(goal="pay the bill")
    assert run.call("freely", {"line": "before", "file": str(file)}).status == "ok"
    approval = ask(run, file)
    with sqlite3.connect(f"file:{next(module_daemon.directory.rglob('journal.db'))}?mode=ro", uri=True) as journal:
        rows = "SELECT state, checkpoint, executed FROM approvals WHERE id = ?"
        ((state, frozen, _),) = journal.execute(rows, (approval,))
        checkpoint, frame = json.loads(frozen), json.loads(frozen)["frame"]
        assert state == "pending"
        assert json.loads(checkpoint["arguments"]) == {"line": "once", "file": str(file)}
        assert frame["goal_hash"] == hashlib.sha256(b"pay the bill").hexdigest()
        assert (frame["state_version"], frame["decision"]) == (1, "2.1")
        assert frame["budgets"]["steps"] == 23
        call = outcome(client, client.approve(approval).call).call
        assert journal.execute(rows, (approval,)).fetchall()[0][::2] == ("consumed", call)
        assert journal.execute("SELECT state FROM calls WHERE id = ?", (call,)).fetchall() == [("succeeded",)]


@pytest.mark.behaviour("M086")
@pytest.mark.behaviour("M121")
def test_a_run_waits_for_a_person_and_goes_on_with_exactly_what_was_asked(client: Client, file: Path) -> None:
    run = client.open_run(goal="write once", deadline_ms=60_000)
    run.step()
    approval = ask(run, file)
    waiting = run.view()
    assert used(run, "steps", "tool_calls") == [1, 0], "nothing but the step is charged while it waits"
    late = run.call("freely", {"line": "meanwhile", "file": str(file)})
    assert (late.status, late.reason) == ("not_executed", "run_settled")
    time.sleep(0.3)
    assert run.view().deadline.remaining_ms == waiting.deadline.remaining_ms, "its time stands still"
    result = outcome(client, client.approve(approval).call)
    assert (result.status, result.run, result.approval) == ("ok", run.id, approval)
    assert lines(file) == [f"once {result.idempotency_key}"]
    after = run.view()
    assert (after.status, after.stop, after.approvals) == ("running", None, [])
    assert after.deadline.remaining_ms <= waiting.deadline.remaining_ms
    assert (used(run, "steps", "tool_calls"), after.state_version) == ([1, 1], 1)
    assert run.finish("done").status == "completed"  # type: ignore[union-attr]  # it has no checks
    kinds = [event.kind for event in run.events()]
    order = ["approval_asked", "run_suspended", "approval_decided", "approval_consumed", "run_resumed", "run_settled"]
    assert [kind for kind in kinds if kind in order] == order
    assert [event.data["run_seq"] for event in run.events()] == list(range(1, len(kinds) + 1))


@pytest.mark.case("B087")
def test_three_approvals_in_a_row_run_nothing_again_that_came_before_them(client: Client, file: Path) -> None:
    with client.run(goal="three pauses") as run:
        for number in range(3):
            run.step()
            assert run.call("freely", {"line": f"before {number}", "file": str(file)}).status == "ok"
            approval = ask(run, file, f"asked {number}")
            assert outcome(client, client.approve(approval).call).status == "ok"
        run.finish("done")
    said = [line.rsplit(" ", 1)[0] for line in lines(file)]
    assert said == [f"{what} {number}" for number in range(3) for what in ("before", "asked")]


@pytest.mark.behaviour("M045")
@pytest.mark.behaviour("M059")
def test_a_run_that_a_rule_denies_is_blocked_at_once_and_nothing_of_it_is_tried_again(
    client: Client, file: Path
) -> None:
    run = client.open_run(goal="what is not allowed")
    denied = run.call("freely", {"line": "a forbidden thing", "file": str(file)})
    assert (denied.status, denied.reason, denied.retryable) == ("not_executed", "policy_denied", False)
    stop = run.wait()
    assert (stop.outcome, stop.status, stop.reason, stop.resumable) == ("stopped", "blocked", "policy_denied", False)
    assert stop.advice == "never"
    again = run.call("freely", {"line": "by another way", "file": str(file)})
    assert (again.status, again.reason) == ("not_executed", "run_settled")
    assert lines(file) == []


def test_a_rejection_is_told_once_and_the_run_goes_on_without(client: Client, file: Path) -> None:
    run = client.open_run(goal="ask twice")
    approval = ask(run, file)
    told = outcome(client, client.reject(approval, note="not today").call)
    assert (told.status, told.reason, told.run) == ("not_executed", "approval_rejected", run.id)
    assert told.error is not None
    assert "not today" in told.error.message
    assert run.view().status == "running"
    again = run.call("undeclared", {"file": str(file), "line": "once"})
    assert (again.status, again.reason) == ("not_executed", "policy_denied"), "the same call is not asked about again"
    assert again.error is not None
    assert approval in again.error.message
    assert client.approvals(run=run.id) == []
    assert run.call("freely", {"line": "something else", "file": str(file)}).status == "ok"
    assert run.finish().status == "completed"  # type: ignore[union-attr]  # it has no checks
    assert [line.rsplit(" ", 1)[0] for line in lines(file)] == ["something else"]


def test_a_rejection_may_end_the_run(client: Client, file: Path) -> None:
    run = client.open_run(goal="stop")
    client.reject(ask(run, file), note="stop it", then="stop")
    stop = run.wait()
    assert (stop.status, stop.reason, stop.outcome) == ("blocked", "approval_rejected", "stopped")
    assert lines(file) == []


@pytest.mark.behaviour("M094")
def test_a_run_that_is_cancelled_while_it_waits_runs_nothing_ever(client: Client, file: Path) -> None:
    run = client.open_run(goal="cancelled")
    approval = ask(run, file)
    stop = run.cancel()
    assert (stop.status, stop.reason) == ("cancelled", "client")
    assert refused(lambda: client.approve(approval)) == "approval_void"
    assert lines(file) == []
    assert [event.data["decision"] for event in run.events() if event.kind == "approval_decided"] == ["void"]


def test_a_call_that_is_cancelled_while_it_waits_leaves_its_run_to_go_on(client: Client, file: Path) -> None:
    run = client.open_run(goal="one call less")
    approval = ask(run, file)
    (asked,) = client.approvals(run=run.id)
    client.handle(asked.call).cancel()
    (void,) = client.approvals(run=run.id, all=True)
    told = outcome(client, void.executed)
    assert (void.state, told.status, told.delivery) == ("void", "cancelled", "not_delivered")
    assert refused(lambda: client.approve(approval)) == "approval_void"
    assert run.call("freely", {"line": "goes on", "file": str(file)}).status == "ok"
    assert [line.rsplit(" ", 1)[0] for line in lines(file)] == ["goes on"]


@pytest.mark.parametrize("on_disconnect", ["cancel", "keep"])
@pytest.mark.case("B089")
def test_who_goes_away_while_a_person_is_asked_has_decided_nothing(
    client: Client, module_daemon: TestedDaemon, file: Path, on_disconnect: str
) -> None:
    with Client(module_daemon.socket) as other:
        run = other.open_run(goal="left alone", on_disconnect=on_disconnect)  # type: ignore[typeddict-item]  # both are
        approval = ask(run, file)
    assert [one.state for one in client.approvals(run=run.id)] == ["pending"]
    assert client.attach_run(run.id).view().status == "waiting_for_approval"
    assert outcome(client, client.approve(approval).call).status == "ok"
    assert len(lines(file)) == 1


def test_a_budget_that_is_used_up_meanwhile_ends_the_run_and_the_approval_is_not_consumed(
    client: Client, file: Path
) -> None:
    parent = client.open_run(goal="shared", limits={"tool_calls": 1})
    child = client.open_run(goal="part of it", parent=parent.id)
    approval = ask(child, file)
    assert parent.call("freely", {"line": "the last one", "file": str(file)}).status == "ok"
    assert refused(lambda: client.approve(approval)) == "budget_exhausted"
    stop = child.wait()
    assert (stop.status, stop.reason) == ("budget_exhausted", "tool_call_budget")
    assert [one.state for one in client.approvals(run=child.id, all=True)] == ["void"]
    assert [line.rsplit(" ", 1)[0] for line in lines(file)] == ["the last one"]
    parent.cancel()


@pytest.mark.parametrize(
    ("scope", "same", "other"), [("call", True, True), ("same_args", False, True), ("tool", False, False)]
)
def test_a_scope_is_what_else_a_yes_holds_for(client: Client, file: Path, scope: str, same: bool, other: bool) -> None:
    def asks(run: Run, line: str) -> bool:
        result = run.call("undeclared", {"line": line, "file": str(file)})
        if result.approval is None:
            return False
        run.wait()
        outcome(client, client.approve(result.approval).call)
        return True

    run = client.open_run(goal="scopes")
    outcome(client, client.approve(ask(run, file), scope=scope).call)  # type: ignore[arg-type]  # one of the three
    assert (asks(run, "once"), asks(run, "another")) == (same, other)
    run.cancel()
    assert asks(client.open_run(goal="another run"), "once")


# ------------------------------------------------------------ in another life


def standing(run: Run) -> tuple[object, ...]:
    view = run.view()
    budgets = {name: (one.limit, one.used, one.left) for name, one in view.budgets.items() if name != "wall_ms"}
    counted = (view.step, view.calls, view.state_version, view.approvals, view.notices)
    return (view.status, view.stop, budgets, view.deadline.remaining_ms, *counted)


@pytest.mark.case("B093")
@pytest.mark.behaviour("M125")
def test_a_run_that_waits_is_the_same_in_the_next_life(start_daemon: Callable[..., TestedDaemon], file: Path) -> None:
    first = start_daemon(ASKING + TOOLS)
    missing = {"file": str(file.with_name("missing"))}
    with Client(first.socket) as client:
        run = client.open_run(goal="outlives", limits={"tool_calls": 5}, deadline_ms=300_000)
        lost = client.open_run(goal="does not wait")
        run.call("freely", {"line": "before", "file": str(file)})
        failed = [run.call("look", missing) for _ in range(2)]
        assert not any(_noticed(one) for one in failed)
        approval = run.call("look_asked", {"file": str(file)}).approval
        assert approval is not None
        assert run.wait().resumable
        before = standing(run)
    first.kill()
    second = start_daemon(ASKING.replace("\n", '\nexpires_ms = "400ms"\n') + TOOLS, after=first)
    with Client(second.socket) as client:
        run = client.attach_run(run.id)
        assert standing(run) == before, "budgets, counters, time and state are those from before the pause"
        assert client.attach_run(lost.id).view().status == "internal_error"
        assert outcome(client, client.approve(approval).call).status == "ok"
        assert client.approve(approval).approval.state == "consumed"
        assert used(run, "tool_calls") == [4]
        third = run.call("look", missing)
        assert _noticed(third), "the two failures before the pause count"
        late = ask(client.open_run(goal="nobody answers"), file)
        (asked,) = [one for one in client.approvals() if one.approval == late]
        assert asked.run is not None
        over = _ended(client.attach_run(asked.run))
        assert (over.status, over.reason) == ("blocked", "approval_expired")
        assert refused(lambda: client.approve(late)) == "approval_expired"
    assert [line.rsplit(" ", 1)[0] for line in lines(file)] == ["before"]


def _noticed(result: CallResult) -> bool:
    return "repeat_error" in [notice.detector for notice in result.notices]


def _ended(run: Run):  # type: ignore[no-untyped-def]  # a stop record
    until = time.monotonic() + 30
    while (stop := run.wait()).resumable:
        assert time.monotonic() < until, "it never expired"
        time.sleep(0.05)
    return stop
