"""A person is asked before a call runs; what was asked runs, once, and nothing else."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deadlined import Client
from deadlined._errors import RequestRefused
from protocol import CallResult
from protocol._runs import ApprovalView
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

WRITE = """\
kind = "command"
argv = ["sh", "-c", 'printf "%s %s\\n" "$1" "$DEADLINED_IDEMPOTENCY_KEY" >> "$2"', "sh", "{line}", "{file}"]
arguments = { line = "str", file = "str" }
"""
"""Adds a line and the idempotency key to a file, in one write."""
LOOK = """\
kind = "command"
argv = ["cat", "{file}"]
arguments = { file = "str" }
read_only = true
"""
TOOLS = f"""\
[tool.undeclared]
{WRITE}
[tool.on_write]
{WRITE}approval = "on_write"
[tool.freely]
{WRITE}approval = "never"
[tool.look]
{LOOK}
[tool.look_asked]
{LOOK}approval = "always"
"""
RULES = """
[[policy]]
tool = "freely"
when = { line = "ask*" }
action = "ask"
reason = "the rule asks"

[[policy]]
tool = "*"
when = { line = "*forbidden*" }
action = "deny"
reason = "the rule forbids"
"""
PROFILES = """
[profile.careful]
approval = "on_write"
[profile.trusting]
approval = "never"
"""
ASKING = "[approval]\n"
LATE_MS = 60_000


@pytest.fixture(scope="module")
def asking() -> Iterator[TestedDaemon]:
    """A daemon with tools of every kind of approval, and rules."""
    with open_daemons() as start:
        yield start(ASKING + TOOLS + RULES + PROFILES)


@pytest.fixture
def client(asking: TestedDaemon) -> Iterator[Client]:
    with Client(asking.socket) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What the tools write to."""
    return tmp_path / "written"


def ask(client: Client, file: Path, line: str = "once", tool: str = "undeclared", **options: object) -> ApprovalView:
    """Call a tool that asks; the question that it asks."""
    result = client.call(tool, {"line": line, "file": str(file)}, **options)  # type: ignore[arg-type]  # options of a submit
    return question(client, result)


def question(client: Client, result: CallResult) -> ApprovalView:
    assert (result.status, result.reason) == ("waiting_for_approval", "approval_required"), result.error
    assert result.delivery == "not_delivered"
    (found,) = [one for one in client.approvals() if one.approval == result.approval]
    assert (found.state, found.call) == ("pending", result.call)
    return found


def outcome(client: Client, call: str | None) -> CallResult:
    assert call is not None
    return client.handle(call).wait(30)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(RequestRefused) as refusal:
        act()
    return refusal.value.error.code


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.behaviour("M086")
@pytest.mark.behaviour("M121")
def test_what_was_asked_runs_once_when_a_person_has_said_yes(client, file):
    text = '{ "line" : "e\\u0301 ☃",\n  "file":"' + str(file) + '"}'
    asked = question(client, client.call("undeclared", text))
    assert asked.arguments == text
    assert lines(file) == []
    decided = client.approve(asked.approval, note="seen")
    result = outcome(client, decided.call)
    assert (result.status, result.approval, result.call) == ("ok", asked.approval, decided.approval.executed)
    assert result.call != asked.call
    assert lines(file) == [f"e\u0301 ☃ {result.idempotency_key}"]
    view = next(one for one in client.approvals(all=True) if one.approval == asked.approval)
    assert (view.state, view.note, view.decided_by, view.executed) == ("consumed", "seen", os.getuid(), result.call)
    assert asked.approval not in [one.approval for one in client.approvals()]


def test_the_record_of_it_has_the_very_bytes_and_was_written_before_anybody_heard(client, asking, file):
    text = '{"file":"' + str(file) + '",   "line":"\\u0062ytes"}'
    asked = question(client, client.call("undeclared", text))
    journal = next(asking.directory.rglob("journal.db"))
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as reader:
        ((state, checkpoint),) = reader.execute(
            "SELECT state, checkpoint FROM approvals WHERE id = ?", (asked.approval,)
        )
    assert state == "pending"
    frozen = json.loads(checkpoint)
    assert frozen["arguments"] == text
    assert {"contract", "args_fp", "key", "policy_version", "expires_at_ms", "frame"} <= set(frozen)
    call = outcome(client, client.approve(asked.approval).call).call
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as reader:
        assert reader.execute("SELECT arguments FROM calls WHERE id = ?", (call,)).fetchall() == [(text,)]


@pytest.mark.behaviour("M071")
@pytest.mark.behaviour("M072")
@pytest.mark.parametrize(
    ("tool", "asked"),
    [("undeclared", True), ("on_write", True), ("freely", False), ("look", False), ("look_asked", True)],
)
def test_a_tool_says_when_it_asks_and_one_that_says_nothing_asks_before_it_writes(client, file, tool, asked):
    file.write_text("")
    arguments = {"file": str(file)} | ({} if tool.startswith("look") else {"line": "x"})
    result = client.call(tool, arguments)
    assert result.status == ("waiting_for_approval" if asked else "ok"), result.error
    assert bool(lines(file)) is (tool == "freely")


@pytest.mark.parametrize(
    ("profile", "tool", "asked"),
    [("careful", "freely", True), ("careful", "look_asked", False), ("trusting", "undeclared", False)],
)
def test_the_profile_of_a_run_says_when_its_calls_ask(client, file, profile, tool, asked):
    file.write_text("")
    run = client.open_run(profile=profile)
    result = run.call(tool, {"file": str(file)} | ({} if tool.startswith("look") else {"line": "x"}))
    assert result.status == ("waiting_for_approval" if asked else "ok"), result.error
    run.cancel()


@pytest.mark.behaviour("M045")
def test_a_rule_that_denies_is_the_end_of_it_and_one_that_asks_goes_before_a_tool_that_does_not(client, file):
    denied = client.call("freely", {"line": "a forbidden thing", "file": str(file)})
    assert (denied.status, denied.reason, denied.retryable) == ("not_executed", "policy_denied", False)
    assert denied.error is not None
    assert (denied.error.class_, denied.error.message) == ("policy", "the rule forbids")
    asked = ask(client, file, "ask me", "freely")
    assert asked.reason == "the rule asks"
    assert lines(file) == []


@pytest.mark.behaviour("M073")
def test_arguments_are_judged_before_any_rule_is_read(client, file):
    for bad in ('{"line": "forbidden", "file": 1}', '{"line": "forbidden"', '{"line": "forbidden"}'):
        result = client.call("freely", bad)
        assert (result.status, result.reason) == ("not_executed", "invalid_arguments"), bad


def test_fifty_who_approve_at_once_hear_of_one_call_which_runs_once(client, asking, file):
    asked = ask(client, file)
    heard: list[str | None] = []

    def approve() -> None:
        with Client(asking.socket) as other:
            heard.extend(other.approve(asked.approval).call for _ in range(5))

    threads = [threading.Thread(target=approve) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 50
    (call,) = set(heard)
    outcome(client, call)
    assert client.approve(asked.approval).call == call, "and so does whoever comes later"
    assert len(lines(file)) == 1


@pytest.mark.behaviour("M094")
def test_what_is_cancelled_while_it_waits_never_runs(client, file):
    asked = ask(client, file, key="k-cancelled")
    client.handle(asked.call).cancel()
    assert refused(lambda: client.approve(asked.approval)) == "approval_void"
    again = client.call("undeclared", {"line": "once", "file": str(file)}, key="k-cancelled")
    assert (again.status, again.reason, again.delivery) == ("cancelled", "operator", "not_delivered")
    assert lines(file) == []


def test_a_person_says_no(client, file):
    asked = ask(client, file, key="k-no")
    decided = client.reject(asked.approval, note="not today")
    result = outcome(client, decided.call)
    assert (result.status, result.reason, result.delivery) == ("not_executed", "approval_rejected", "not_delivered")
    assert result.error is not None
    assert "not today" in result.error.message
    assert refused(lambda: client.approve(asked.approval)) == "approval_rejected"
    again = client.call("undeclared", {"line": "once", "file": str(file)}, key="k-no")
    assert again.call == result.call, "the same delivery is not asked about again"
    assert lines(file) == []


def test_an_edited_call_is_judged_again_and_has_a_key_of_its_own(client, file):
    asked = ask(client, file, "as asked")
    plain = client.call("undeclared", {"line": "x", "file": str(file)}).idempotency_key
    for bad, code in (
        ('{"line": 1}', "invalid_arguments"),
        ({"line": "forbidden", "file": str(file)}, "policy_denied"),
    ):
        edited = bad
        assert refused(lambda edited=edited: client.approve(asked.approval, arguments=edited)) == code
    decided = client.approve(asked.approval, arguments={"line": "as edited", "file": str(file)})
    result = outcome(client, decided.call)
    assert decided.approval.version == 2
    assert "as edited" in decided.approval.arguments
    (line,) = lines(file)
    assert line == f"as edited {result.idempotency_key}"
    assert result.idempotency_key not in (plain, asked.approval)


def test_a_delivery_that_comes_twice_is_asked_about_once_and_hears_what_came_of_it(client, file):
    asked = ask(client, file, key="k-1")
    again = client.call("undeclared", {"line": "once", "file": str(file)}, key="k-1")
    assert (again.call, again.approval) == (asked.call, asked.approval)
    result = outcome(client, client.approve(asked.approval).call)
    late = client.call("undeclared", {"line": "once", "file": str(file)}, key="k-1")
    assert (late.call, late.status) == (result.call, "ok")
    assert lines(file) == [f"once {result.idempotency_key}"]


def test_one_directory_is_not_another_of_the_same_name(client, file, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    asked = ask(client, file, cwd=str(place))
    place.rename(tmp_path / "elsewhere")
    place.mkdir()
    assert refused(lambda: client.approve(asked.approval)) == "approval_mismatch"
    asked = ask(client, file, cwd=str(place))
    assert outcome(client, client.approve(asked.approval).call).status == "ok"
    assert len(lines(file)) == 1


@pytest.mark.case("B089")
def test_who_goes_away_has_decided_nothing(client, asking, file):
    with Client(asking.socket) as other:
        result = other.call("undeclared", {"line": "x", "file": str(file)})
    asked = question(client, result)
    assert lines(file) == []
    assert outcome(client, client.approve(asked.approval).call).status == "ok"


def test_scopes_hold_within_runs(client, file):
    asked = ask(client, file)
    assert refused(lambda: client.approve(asked.approval, scope="tool")) == "invalid_arguments"
    assert refused(lambda: client.approve("a_nothing")) == "unknown_approval"


def test_what_waits_holds_nothing_and_the_log_says_what_happened(client, file):
    handle = client.submit("undeclared", {"line": "x", "file": str(file)}, detach=True)
    asked = question(client, handle.wait(30))
    assert [row for row in client.processes() if row.call == asked.call] == []
    call = client.approve(asked.approval, note="ok").call
    outcome(client, call)
    told = {event.kind: event for event in client.events(call=asked.call)}
    assert {"approval_asked", "call_ended", "approval_decided", "approval_consumed"} <= set(told)
    assert told["approval_asked"].seq < told["call_ended"].seq < told["approval_decided"].seq
    decided = told["approval_decided"].data
    assert (decided["decision"], decided["by"], decided["note"]) == ("approve", os.getuid(), "ok")
    assert told["approval_consumed"].data["executed"] == call


@pytest.mark.case("B090")
def test_the_next_life_asks_for_the_same_thing_or_not_at_all(start_daemon, file):
    """A restart, with a record that somebody has changed, a tool that has, and rules that have."""
    strict = '[[policy]]\ntool = "on_write"\nwhen = { line = "%s*" }\naction = "%s"\n'
    first = start_daemon(ASKING + TOOLS)
    with Client(first.socket) as client:
        names = ("same", "edited", "denied", "asked")
        asked = {name: ask(client, file, name, "on_write", key=name) for name in names}
        other = client.call("look_asked", {"file": str(file)})
        no = ask(client, file, "no", "on_write")
        client.reject(no.approval, note="never")
        done = client.approve(ask(client, file, "done").approval)
        outcome(client, done.call)
    first.kill()
    journal = next(first.directory.rglob("journal.db"))
    with sqlite3.connect(journal) as writer:
        changed = (asked["edited"].approval,)
        writer.execute(
            "UPDATE approvals SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), 'edited', 'EDITED') AS BLOB)"
            " WHERE id = ?",
            changed,
        )
    config = ASKING + TOOLS.replace("read_only = true\napproval", "timeout_ms = 9\napproval")
    second = start_daemon(config + strict % ("denied", "deny") + strict % ("asked", "ask"), after=first)
    with Client(second.socket) as client:
        waiting = [one.approval for one in client.approvals()]
        assert waiting == [*(one.approval for one in asked.values()), other.approval]
        again = client.call("on_write", {"line": "same", "file": str(file)}, key="same")
        assert (again.status, again.approval) == ("waiting_for_approval", asked["same"].approval)
        assert refused(lambda: client.approve(asked["edited"].approval)) == "approval_mismatch"
        assert refused(lambda: client.approve(str(other.approval))) == "approval_mismatch"
        assert refused(lambda: client.approve(asked["denied"].approval)) == "policy_denied"
        assert refused(lambda: client.approve(asked["asked"].approval)) == "policy_changed"
        assert refused(lambda: client.approve(no.approval)) == "approval_rejected"
        assert client.approve(done.approval.approval).call == done.call
        anew = [one for one in client.approvals() if one.call == asked["asked"].call]
        assert [one.state for one in anew] == ["pending"]
        result = outcome(client, client.approve(anew[0].approval).call)
        assert result.status == "ok"
        assert outcome(client, client.approve(asked["same"].approval).call).status == "ok"
        assert [line.split()[0] for line in lines(file)] == ["done", "asked", "same"]
