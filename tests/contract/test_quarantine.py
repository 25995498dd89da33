"""What happens around a call that cannot be killed, and to calls and tools that lose their workers again and again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
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


def is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


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

    def start(client: Client, deadline_ms: int = 60_000) -> Any:
        before = set(pids(mark))
        handle = client.submit("shell", shell(mark), deadline_ms=deadline_ms)
        somebody_alive(mark, len(before) + 3)
        freezer.freeze(sorted(set(pids(mark)) - before))
        return handle

    return start


@pytest.fixture
def leak(hang) -> Callable[[Client], None]:
    """A call that is cancelled and cannot be killed."""

    def start(client: Client) -> None:
        handle = hang(client)
        handle.cancel()
        result = handle.wait()
        assert (result.status, result.kill.confirmed) == ("cancelled", False)

    return start


def _told(client: Client, call: str) -> dict[str, dict[str, Any]]:
    """What the log has of a call, by kind."""
    return {event.kind: event.data for event in client.events(call=call)}


@pytest.mark.case("B025")
@pytest.mark.case("B022")
def test_a_call_that_cannot_be_killed_is_answered_in_time_named_and_watched(start_daemon, freezer, hang, mark):
    daemon = start_daemon(CONFIG)
    line = CommandLine(daemon.socket)
    with Client(daemon.socket) as client:
        handle = hang(client, deadline_ms=4_000)
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
        wait_until(lambda: "kill_confirmed" in _told(client, result.call), "its end is not in the log")
        told = _told(client, result.call)
        assert {row["pid"] for row in told["kill_unconfirmed"]["survivors"]} == frozen
        assert {row["uid"] for row in told["kill_unconfirmed"]["survivors"]} == {os.geteuid()}
        assert told["kill_confirmed"]["after_ms"] > 0


@pytest.mark.case("B022")
def test_a_tool_that_leaves_what_cannot_be_killed_is_refused_until_that_is_gone(start_daemon, freezer, leak):
    daemon = start_daemon(CONFIG)
    with Client(daemon.socket) as client:
        for _ in range(2):
            leak(client)
        refused = client.call("shell", {"argv": ["true"]})
        assert (refused.status, refused.reason, refused.delivery) == ("not_executed", "poison_call", "not_delivered")
        assert "2 of its workers were killed and are not dead" in refused.error.message
        assert client.call("python", {"code": "6 * 7"}).content == 42
        assert any(row.kind == "tool" and row.tool == "shell" for row in client.status().quarantine)
        freezer.thaw()
        wait_until(lambda: client.call("shell", {"argv": ["true"]}).status == "ok", "the tool stays in quarantine")
        assert client.status().quarantine == []


NEVER_TWICE = {"code": "import os; os._exit(3)"}


def test_a_call_that_lost_its_worker_twice_is_refused_and_others_of_its_tool_are_not(start_daemon):
    daemon = start_daemon("[quarantine]\npoison_ms = 3000")
    with Client(daemon.socket) as client:
        for _ in range(2):
            assert client.call("python", NEVER_TWICE).status == "crashed"
        refused = client.call("python", NEVER_TWICE)
        assert (refused.status, refused.reason, refused.delivery) == ("not_executed", "poison_call", "not_delivered")
        assert not refused.retryable
        assert "its worker was lost 2 times" in refused.error.message
        assert client.call("python", {"code": "6 * 7"}).content == 42
        (row,) = client.status().quarantine
        assert (row.kind, row.measure, row.tool) == ("call", "poison", "python")
        wait_until(lambda: client.status().quarantine == [], "it stays in quarantine")
        assert client.call("python", NEVER_TWICE).status == "crashed", "its time is up"
        kinds = [event.kind for event in client.events() if event.kind.startswith("quarantine")]
        assert kinds[:2] == ["quarantined", "quarantine_lifted"]


HANGING = """
[quarantine]
warn_keys = 2
serial_keys = 3
breaker_keys = 4
breaker_ms = 3000
[tool.hangs]
kind = "command"
argv = ["sleep", "{seconds}"]
arguments = { seconds = "int" }
"""


def hung(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    """A call that hung: killed after it had begun. One that had not begun by its deadline is sent again."""
    result = client.call(tool, arguments, deadline_ms=300)
    return result if result.delivery == "unknown" else hung(client, tool, arguments)


def test_a_tool_whose_calls_hang_is_warned_of_then_runs_alone_then_pauses(start_daemon):
    daemon = start_daemon(HANGING)
    with Client(daemon.socket) as client:
        notices = [hung(client, "hangs", {"seconds": 1_000 + number}).notices for number in range(3)]
        told = [[n.text for n in found if n.detector == "quarantine"] for found in notices]
        assert told[0] == []
        assert "2 different calls of it hung" in told[1][0]
        assert "one at a time" in told[2][0]

        both = [client.submit("hangs", {"seconds": 1}, deadline_ms=20_000) for _ in range(2)]
        results = [handle.wait() for handle in both]
        assert [result.status for result in results] == ["ok", "ok"]
        assert max(result.timing.queued_ms for result in results) >= 500, "they ran side by side"

        assert hung(client, "hangs", {"seconds": 2_000}).status == "killed"
        refused = client.call("hangs", {"seconds": 0})
        assert (refused.status, refused.reason) == ("not_executed", "poison_call")
        assert "its calls are refused for another" in refused.error.message
        assert client.call("shell", {"argv": ["true"]}).status == "ok"
        wait_until(lambda: client.call("hangs", {"seconds": 0}).status == "ok", "it stays refused")


def test_what_hangs_in_a_shell_is_no_fault_of_the_shell(start_daemon):
    daemon = start_daemon(HANGING)
    with Client(daemon.socket) as client:
        for number in range(5):
            result = hung(client, "shell", {"argv": ["sleep", str(1_000 + number)]})
            assert "quarantine" not in [notice.detector for notice in result.notices]
        assert client.call("shell", {"argv": ["true"]}).status == "ok"
        assert client.status().degraded == []


QUICK_RESTARTS = "[restart]\nfirst_delay_ms = 1\ndelay_cap_ms = 1\nclass_ends = 100\npool_ends = 200"


def test_a_call_given_to_a_worker_that_had_just_died_idle_runs_on_another_one(start_daemon):
    """The daemon is stopped while one dies, so that it hears of the call and of the death at the same time."""
    daemon = start_daemon(QUICK_RESTARTS)
    with Client(daemon.socket) as client, ThreadPoolExecutor(1) as threads:
        for number in range(8):
            wait_until(lambda: [row for row in client.processes() if row.state == "idle"] != [], "no idle worker")
            idle = [row.pid for row in client.processes() if row.state == "idle"]
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                victim = psutil.Process(idle[number % len(idle)])
                victim.kill()
                wait_until(lambda victim=victim: is_dead(victim), "it does not die")
                told = threads.submit(client.call, "list_files", {}, deadline_ms=20_000)
                time.sleep(0.02)  # its words are in the daemon's socket, most probably
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            result = told.result(60)
            assert result.status == "ok", (number, result)


def test_workers_that_die_idle_again_and_again_open_the_pools_breaker_and_one_that_lives_closes_it(start_daemon):
    daemon = start_daemon("[restart]\nclass_ends = 2\nprobe_ms = 1000\nfirst_delay_ms = 1\ndelay_cap_ms = 1")
    with Client(daemon.socket) as client:
        until, status = time.monotonic() + 20, client.status()
        while not (rows := [row for row in status.quarantine if row.kind == "pool"]):
            assert time.monotonic() < until
            for row in client.processes():
                if row.state == "idle":
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(row.pid, signal.SIGKILL)
            status = client.status()
        assert (rows[0].flavour, rows[0].measure) == ("bare", "breaker")
        assert any("end or fail too often" in why for why in status.degraded)
        wait_until(lambda: client.status().degraded == [], "the breaker stays open")
        assert client.call("shell", {"argv": ["true"]}).status == "ok"


def test_with_a_quarter_of_the_slots_in_quarantine_no_call_is_taken(start_daemon, freezer, leak):
    daemon = start_daemon("[daemon]\nin_flight = 1\nconfirm_budget_ms = 200")
    with Client(daemon.socket) as client:
        leak(client)
        refused = client.call("read_file", {"path": "x"})
        assert (refused.status, refused.reason, refused.retryable) == ("not_executed", "pool_unhealthy", True)
        assert any("new calls are refused" in why for why in client.status().degraded)
        freezer.thaw()
        wait_until(lambda: client.call("shell", {"argv": ["true"]}).status == "ok", "calls stay refused")


@pytest.mark.case("B025")
def test_a_daemon_with_something_that_cannot_be_killed_stops_all_the_same_and_says_so(start_daemon, freezer, leak):
    daemon = start_daemon("[daemon]\nconfirm_budget_ms = 200\nshutdown_drain_ms = 100")
    daemon.expected_exit = 70
    with Client(daemon.socket) as client:
        leak(client)
        os.kill(daemon.pid, signal.SIGTERM)
        wait_until(lambda: daemon.process.poll() is not None, "the daemon waits for what does not die")
    assert daemon.process.returncode == 70
