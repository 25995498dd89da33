"""K01: what a tool has started outlives a timeout, a cancel, the end of a session, or the supervisor."""

from __future__ import annotations

import os
import signal
import time

import pytest

from deadlined import Client, _outside
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, ROUTES, check_ended, open_daemon_as, wait_until
from tests.contract.conftest import MARK
from tests.contract.farside import children_of

pytestmark = pytest.mark.contract

CONFIG = """
[daemon]
idle_worker_ms = 200
[limits]
memory_bytes = "64MiB"
"""
SPIN = "(while :; do :; done) | cat | cat"
JOBS = f"i=0; while [ $i -lt 8 ]; do sha256sum /dev/zero & i=$((i+1)); done; sleep {FOREVER}; kill %1 %2 %3"
BUSY = "sum(range(10**14))"  # in C, with the interpreter's lock held: no handler of this process ever runs


@pytest.mark.case("B001")
@pytest.mark.parametrize("route", ROUTES)
def test_b001_a_pipeline_ends_with_its_shell(calls, route):
    result = calls.end(route, "shell", calls.arguments("sh", "-c", SPIN), count=3)
    check_ended(route, result)


@pytest.mark.case("B001")
def test_b001_the_processor_time_of_what_was_killed_is_in_the_result(python):
    """The spinning stage is nobody's child whose exit status was ever collected. As root a control group counts."""
    with open_daemon_as(python, "") as daemon, Client(daemon.socket) as client:
        handle = client.submit("shell", {"argv": ["sh", "-c", SPIN]}, deadline_ms=60_000)
        wait_until(lambda: [row for row in client.processes() if (row.cpu_ms or 0) >= 150], "it does not spin")
        time.sleep(0.3)
        handle.cancel()
        result = handle.wait(PATIENCE_S)
        idle = client.call("shell", {"argv": ["sleep", FOREVER]}, deadline_ms=300)
    assert result.usage.cpu_ms >= 100
    assert idle.usage.cpu_ms < result.usage.cpu_ms


@pytest.mark.case("B002")
@pytest.mark.parametrize("route", ROUTES)
def test_b002_cleaning_up_is_not_left_to_the_last_line_of_a_script(calls, route):
    result = calls.end(route, "shell", calls.arguments("bash", "-c", JOBS), count=9)
    check_ended(route, result)


@pytest.mark.case("B003")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("blocked_in", [BUSY, "time.sleep(1111)", "os.waitpid(child.pid, 0)"])
def test_b003_the_kill_covers_a_python_worker_and_what_it_started(calls, route, blocked_in):
    code = "import os, subprocess, time\n" + f"child = subprocess.Popen(['sleep', '{FOREVER}'])\n" + blocked_in
    check_ended(route, calls.end(route, "python", {"code": code}, count=1))


@pytest.mark.case("B004")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("exec tail -f /dev/null", 1),
        ("tail -f /dev/null | wc -l", 3),
        ("trap '' TERM; tail -f /dev/null & tail -f /dev/null; :", 3),
    ],
    ids=["one program", "a pipeline", "deaf to SIGTERM"],
)
def test_b004_simple_and_compound_commands_end_alike(calls, route, line, count):
    check_ended(route, calls.end(route, "shell", calls.arguments("sh", "-c", line), count))


EATER = "python3 -c 'b = [bytearray(1 << 20) for _ in range(MIB)]; import time; time.sleep(1111)'"
EATERS = {
    "waits": ("shell", f"echo before; {EATER} & wait"),
    "goes on": ("shell", f"echo before; {EATER} & sleep 1111"),
    "fails": ("shell", f"echo before; {EATER}; exit 7"),
    "is a Python tool": ("python", f'import os, time\nprint("before")\nos.system("""{EATER}""")\ntime.sleep(1111)'),
}


@pytest.mark.case("B005")
@pytest.mark.parametrize(("mib", "reason"), [(400, "memory_limit"), (8, "time_budget")])
@pytest.mark.parametrize("parent", EATERS)
def test_b005_whichever_limit_comes_first_ends_the_whole_tree(calls, daemon_memory, parent, mib, reason):
    """However the parent of what is too large would take it."""
    if reason == "memory_limit" and not _memory_is_limited(calls.daemon):
        pytest.skip("this host gives no memory controller to the tests' uid: there is no limit to reach")
    tool, text = EATERS[parent]
    line = text.replace("MIB", str(mib))
    arguments = {"code": line} if tool == "python" else calls.arguments("sh", "-c", line)
    before = daemon_memory()
    result = calls.tool(tool, arguments, 600_000 if reason == "memory_limit" else 600)
    assert (result.status, result.reason) == ("killed", reason), (result.exit, result.error)
    assert result.output.view.startswith("before\n")
    assert daemon_memory() - before < 16 << 20


def _memory_is_limited(daemon) -> bool:
    """What it said of its controllers when it got ready."""
    return "memory" in (daemon.directory / "daemon.log").read_text()


@pytest.mark.case("B006")
@pytest.mark.parametrize("tool", ["shell", "python"])
@pytest.mark.parametrize("first", ["nothing", "a cancel that nobody waits for", "a wait of its own"])
def test_b006_a_client_that_goes_leaves_no_worker_in_a_call(calls, tool, first):
    arguments = calls.arguments("sleep", FOREVER) if tool == "shell" else {"code": "import time; time.sleep(1111)"}
    with Client(calls.daemon.socket) as leaving:
        handle = leaving.submit(tool, arguments, deadline_ms=60_000)
        wait_until(lambda: any(row.call == handle.call and row.pid for row in leaving.processes()), "it never started")
        (worker,) = [row.pid for row in leaving.processes() if row.call == handle.call]
        family = _outside.tree(worker)
        if first == "a cancel that nobody waits for":
            handle.cancel()
        elif first == "a wait of its own":
            with pytest.raises(TimeoutError):
                leaving.handle(handle.call).wait(0.05)
    wait_until(lambda: not _outside.alive(family), "the worker of a client that has gone lives on")
    wait_until(lambda: all(row.call != handle.call for row in calls.client.processes()), "its call is listed for ever")


@pytest.mark.case("B007")
def test_b007_fifty_sessions_leave_as_many_workers_as_one(calls):
    """Spares are two; a third is there while its predecessor ends or grows idle."""
    for number in range(50):
        with Client(calls.daemon.socket) as session:
            tool, arguments = [("python", {"code": "1"}), ("shell", {"argv": ["true"]})][number % 2]
            assert session.call(tool, arguments, deadline_ms=20_000).status == "ok"
        wait_until(lambda: calls.client.status().workers <= 3, f"workers have grown by round {number}")
    wait_until(lambda: calls.client.status().workers == 2, "more workers than spares stay")
    wait_until(lambda: len(_workers(calls.daemon.pid)) <= 3, "more processes than workers stay")


def _workers(daemon: int) -> list[int]:
    """The children of the daemon's zygote: workers, and the one that is forked in advance of the next request."""
    helpers = [_outside.Process(pid, 0) for pid in children_of(daemon)]
    (outer,) = [helper.pid for helper in helpers if "toolworkers zygote" in _outside.describe(helper)]
    (zygote,) = children_of(outer)
    return children_of(zygote)


@pytest.mark.case("B008")
@pytest.mark.parametrize(
    "line",
    [
        "while :; do echo x >> grow.txt; sleep 0.01; done",
        "(while :; do echo x >> grow.txt; sleep 0.01; done) & wait",
        "setsid sh -c 'trap \"\" TERM HUP; while :; do echo x >> grow.txt; sleep 0.01; done' & wait",
    ],
    ids=["foreground", "background", "own session"],
)
def test_b008_nothing_is_written_after_the_answer(calls, open_directory, line):
    result = calls.run("sh", "-c", line, deadline_ms=500, cwd=open_directory)
    size = (open_directory / "grow.txt").stat().st_size
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert size > 0
    time.sleep(0.3)
    assert (open_directory / "grow.txt").stat().st_size == size


@pytest.mark.case("B008")
def test_b008_a_call_that_may_go_on_was_asked_to_and_is_listed_and_ends_at_its_own_deadline(calls):
    with Client(calls.daemon.socket) as leaving:
        handle = leaving.submit("shell", calls.arguments("sleep", FOREVER), deadline_ms=1_500, detach=True)
    rows = [row for row in calls.client.processes() if row.call == handle.call]
    assert [0 < (row.remaining_ms or 0) <= 1_500 for row in rows] == [True]
    result = calls.client.handle(handle.call).wait(PATIENCE_S)
    assert (result.status, result.reason) == ("killed", "time_budget")


@pytest.mark.case("B009")
def test_b009_no_worker_and_no_tool_outlives_a_killed_daemon(daemon, mark, somebody_alive, nothing_left):
    """Three calls run (one deaf, one in a session of its own, one in Python), two workers are idle."""
    daemon.expected_exit = None
    env = {MARK: mark}
    with Client(daemon.socket) as client:
        for line in ("trap '' TERM HUP; sleep 1111; :", "setsid sleep 1111 & sleep 1111"):
            client.submit("shell", {"argv": ["sh", "-c", line], "env": env}, deadline_ms=60_000)
        code = "import subprocess; subprocess.run(['sleep', '1111'])"
        client.submit("python", {"code": code}, deadline_ms=60_000)
        somebody_alive(mark, 5)
        wait_until(lambda: client.status().idle_workers >= 2, "two workers are idle")
        everybody = _outside.tree(daemon.pid)
        assert len(everybody) >= 12
        os.kill(daemon.pid, signal.SIGKILL)
    wait_until(lambda: not _outside.alive(everybody), "somebody outlived the daemon", patience_s=5)
    nothing_left(mark)
