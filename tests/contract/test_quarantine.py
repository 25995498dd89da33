"""What happens around a call that cannot be killed, and to calls and tools that lose their workers again and again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client
from tests.contract.conftest import MARK, CommandLine, alive

pytestmark = pytest.mark.contract

FREEZER = Path("/sys/fs/cgroup/freezer")
HANGS = "echo here; sleep 1000 & sleep 1000"


class Freezer:
    """A frozen group of cgroup v1: SIGKILL to what is in it stays pending, as in uninterruptible sleep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def freeze(self, pids: list[int]) -> None:
        for pid in pids:
            (self.path / "cgroup.procs").write_text(str(pid))
        (self.path / "freezer.state").write_text("FROZEN")

    def thaw(self) -> None:
        (self.path / "freezer.state").write_text("THAWED")


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    """Thawed and removed at the end, whatever became of the test."""
    group = FREEZER / f"deadlined-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer of cgroup v1 that is ours: {error.strerror}")
    try:
        yield Freezer(group)
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "something stays in the freezer")
        wait_until(lambda: removed(group), "the freezer's group stays")


def removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def wait_until(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def shell(mark: str, script: str = HANGS) -> dict[str, Any]:
    return {"argv": ["sh", "-c", script], "env": {MARK: mark}}


def pids(mark: str) -> list[int]:
    return [int(row.split()[0]) for row in alive(mark)]


CONFIG = """
[daemon]
in_flight = 16
confirm_budget_ms = 200
[quarantine]
leaks = 2
"""


@pytest.fixture
def hang(mark, somebody_alive, freezer) -> Callable[..., Any]:
    """Submits a call and freezes what it started (three processes more): it cannot be killed until the thaw."""

    def start(client: Client, deadline_ms: int = 1_000) -> Any:
        before = set(pids(mark))
        handle = client.submit("shell", shell(mark), deadline_ms=deadline_ms)
        somebody_alive(mark, len(before) + 3)
        freezer.freeze(sorted(set(pids(mark)) - before))
        return handle

    return start


def test_a_call_that_cannot_be_killed_is_answered_in_time_named_and_watched(start_daemon, freezer, hang, mark):
    daemon = start_daemon(CONFIG)
    line = CommandLine(daemon.socket)
    with Client(daemon.socket) as client:
        handle = hang(client)
        frozen = set(pids(mark))
        result = handle.wait()
        assert (result.status, result.reason, result.delivery) == ("killed", "time_budget", "unknown")
        assert (result.kill.confirmed, result.kill.confirmed_after_ms) == (False, None)
        assert {row.pid for row in result.kill.survivors} == frozen
        assert {row.uid for row in result.kill.survivors} == {os.geteuid()}
        assert any("sleep 1000" in row.command for row in result.kill.survivors)
        assert result.output.view == "here\n"
        assert "NOT CONFIRMED" in result.summary
        assert "not dead yet" in result.next_action

        assert client.call("shell", {"argv": ["echo", "others go on"]}).status == "ok"
        (row,) = [row for row in client.processes() if row.state == "quarantined"]
        assert (row.call, row.tool) == (result.call, "shell")
        said = line("status")
        assert said.returncode == 1
        assert f"slot {row.slot}: worker {row.worker}, at call {result.call} of shell, was killed" in said.stdout
        assert f"pid {min(frozen)} of uid {os.geteuid()}" in said.stdout
        (told,) = json.loads(line("status", "--json").stdout)["quarantine"]
        assert (told["kind"], told["slot"], told["call"], told["tool"]) == ("slot", row.slot, result.call, "shell")

        freezer.thaw()
        wait_until(lambda: client.status().degraded == [], "the slot stays in quarantine")
        assert [row for row in client.processes() if row.state == "quarantined"] == []
        assert client.status().unconfirmed_kills == 1
        assert alive(mark) == []
        assert handle.wait() == result, "a result changes no more"


def test_a_tool_that_leaves_what_cannot_be_killed_is_refused_until_that_is_gone(start_daemon, freezer, hang, mark):
    daemon = start_daemon(CONFIG)
    with Client(daemon.socket) as client:
        for _ in range(2):
            assert not hang(client).wait().kill.confirmed
        refused = client.call("shell", {"argv": ["true"]})
        assert (refused.status, refused.reason, refused.delivery) == ("not_executed", "poison_call", "not_delivered")
        assert "2 of its workers were killed and are not dead" in refused.error.message
        assert client.call("python", {"code": "6 * 7"}).content == 42
        assert any(row.kind == "tool" and row.tool == "shell" for row in client.status().quarantine)
        freezer.thaw()
        wait_until(lambda: client.call("shell", {"argv": ["true"]}).status == "ok", "the tool stays in quarantine")
        assert client.status().quarantine == []


def test_with_a_quarter_of_the_slots_in_quarantine_no_call_is_taken(start_daemon, freezer, hang):
    daemon = start_daemon("[daemon]\nin_flight = 1\nconfirm_budget_ms = 200")
    with Client(daemon.socket) as client:
        assert not hang(client).wait().kill.confirmed
        refused = client.call("read_file", {"path": "x"})
        assert (refused.status, refused.reason, refused.retryable) == ("not_executed", "pool_unhealthy", True)
        assert any("new calls are refused" in why for why in client.status().degraded)
        freezer.thaw()
        wait_until(lambda: client.call("shell", {"argv": ["true"]}).status == "ok", "calls stay refused")


def test_a_daemon_with_something_that_cannot_be_killed_stops_all_the_same_and_says_so(start_daemon, freezer, hang):
    daemon = start_daemon("[daemon]\nconfirm_budget_ms = 200\nshutdown_drain_ms = 100")
    daemon.expected_exit = 70
    with Client(daemon.socket) as client:
        assert not hang(client).wait().kill.confirmed
        os.kill(daemon.pid, signal.SIGTERM)
        wait_until(lambda: daemon.process.poll() is not None, "the daemon waits for what does not die")
    assert daemon.process.returncode == 70
