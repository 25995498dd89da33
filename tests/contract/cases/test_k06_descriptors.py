"""K06, the first half: floods that starve the clock, caps that hold on one path only, descriptors that run out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deadlined import Client
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, wait_until
from tests.contract.conftest import MARK

pytestmark = pytest.mark.contract

CAP = 32_000_000
MORE = "yes | head -c 40000000"
CONFIG = f"""
[limits]
output_bytes = "500GiB"  # no flood of these tests gets there
file_bytes = "64MiB"     # nor does the disk get more of it
[tool.capped]
kind = "command"
argv = ["sh", "-c", "{MORE}; sleep {FOREVER}"]
[tool.capped.limits]
output_bytes = {CAP}
[tool.chaos]
kind = "python"
module = "toolworkers.chaos"
"""
FLOODS = {
    "large writes": ["yes"],
    "small writes": ["sh", "-c", "while :; do echo x; done"],
    "many writers": ["sh", "-c", "yes & yes >&2 & while :; do echo x; done"],
}


@pytest.fixture
def no_growth(module_daemon) -> Iterator[None]:
    """The daemon's memory never rose by 50 MB while the test ran."""
    before = _peak_bytes(module_daemon.pid)
    yield
    assert _peak_bytes(module_daemon.pid) - before < 50_000_000


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@contextlib.contextmanager
def reading_along(socket: str, call: str) -> Iterator[list[int]]:
    """Somebody else follows the call's output to its end; the sizes of what was read."""
    sizes: list[int] = []

    def follow() -> None:
        with Client(socket) as reader:
            for piece in reader.handle(call).output():
                sizes.append(len(piece))

    thread = threading.Thread(target=follow)
    thread.start()
    yield sizes
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the reader was never told of the end"


@pytest.mark.case("B030")
@pytest.mark.parametrize("subscribed", [False, True], ids=["nobody reads", "a client reads along"])
@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.usefixtures("no_growth")
def test_b030_a_flood_moves_no_deadline_and_costs_no_memory(calls, flood, subscribed):
    handle = calls.client.submit("shell", calls.arguments(*FLOODS[flood]), deadline_ms=800)
    with reading_along(calls.daemon.socket, handle.call) if subscribed else contextlib.nullcontext([1]) as sizes:
        beside = calls.client.call("shell", {"argv": ["echo", "undisturbed"]}, deadline_ms=20_000)
        result = handle.wait(PATIENCE_S)
    assert beside.output.view == "undisturbed\n"
    assert (result.status, result.reason, result.kill.confirmed) == ("killed", "time_budget", True)
    assert result.output.bytes > 0
    assert sum(sizes) > 0
    assert len(result.output.view.encode()) <= 8192


@pytest.mark.case("B031")
@pytest.mark.parametrize(
    ("tool", "arguments", "options"),
    [
        ("shell", {"argv": ["sh", "-c", f"{MORE}; sleep {FOREVER}"]}, {"max_output_bytes": CAP}),
        ("shell", {"argv": ["sh", "-c", f"{MORE}; sleep {FOREVER}"]}, {"max_output_bytes": CAP, "split_streams": True}),
        ("script", {"text": f"{MORE}; sleep {FOREVER}", "interpreter": "sh"}, {"max_output_bytes": CAP}),
        ("capped", {}, {}),
    ],
    ids=["command", "two pipes", "script", "contract"],
)
@pytest.mark.usefixtures("no_growth")
def test_b031_every_kind_of_command_ends_at_the_cap(calls, tool, arguments, options):
    result = calls.tool(tool, arguments, deadline_ms=600_000, **options)
    assert (result.status, result.reason) == ("killed", "output_limit")
    assert (result.output.bytes, result.output.truncated) == (CAP, True)


@pytest.mark.case("B031")
@pytest.mark.parametrize(
    "code",
    [
        f"print('x' * 40_000_000); import time; time.sleep({FOREVER})",
        f"import subprocess; subprocess.run(['sh', '-c', '{MORE}; sleep {FOREVER}'])",
    ],
    ids=["prints", "has a child print"],
)
@pytest.mark.usefixtures("no_growth")
def test_b031_so_does_a_python_tool(calls, code):
    result = calls.tool("python", {"code": code}, deadline_ms=600_000, max_output_bytes=CAP)
    assert (result.status, result.reason, result.output.truncated) == ("killed", "output_limit", True)


@pytest.mark.case("B031")
@pytest.mark.parametrize(
    ("tool", "arguments"), [("chaos_content", {"kind": "large"}), ("python", {"code": "'x' * 40_000_000"})]
)
@pytest.mark.usefixtures("no_growth")
def test_b031_a_value_is_no_way_around_it(calls, tool, arguments):
    """What would not fit a frame is refused where it was made, and over the cap it has come to it."""
    result = calls.tool(tool, arguments, deadline_ms=60_000)
    assert (result.status, result.error.code, result.content) == ("error", "content", None)
    assert "write large results to a file" in result.error.message
    capped = calls.tool(tool, arguments, deadline_ms=60_000, max_output_bytes=10_000_000)
    assert (capped.status, capped.reason, capped.content) == ("killed", "output_limit", None)


@pytest.mark.case("B031")
@pytest.mark.usefixtures("no_growth")
def test_b031_neither_is_going_on_without_a_client(calls):
    with Client(calls.daemon.socket) as leaving:
        handle = leaving.submit("shell", calls.arguments("yes"), deadline_ms=60_000, detach=True, max_output_bytes=CAP)
    result = calls.client.handle(handle.call).wait(PATIENCE_S)
    assert (result.status, result.reason, result.output.bytes) == ("killed", "output_limit", CAP)


@pytest.mark.case("B031")
def test_b031_nor_exec(run_exec, mark, nothing_left):
    words = ("--deadline", "600s", "--max-output", f"{CAP}B", "--json", "--", "sh", "-c", f"{MORE}; sleep {FOREVER}")
    done = run_exec(*words)
    nothing_left(mark)
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["reason"]) == (1, "killed", "output_limit")
    assert result["output"]["bytes"] == CAP


LEAST = 640
"""Descriptors that a daemon wants to have, whatever its settings."""
SMALL = "[daemon]\nin_flight = 4\nspares = 1\nclients = 8\nidle_worker_ms = 300\n"


@pytest.mark.case("B032")
def test_b032_too_few_descriptors_are_refused_before_any_call_needs_one(open_directory):
    words = ["prlimit", "--nofile=128:128", sys.executable, "-m", "deadlined", "serve", "--socket", "s"]
    done = subprocess.run(words, cwd=open_directory, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (125, "")
    assert f"only 128 files may be open here, at least {LEAST} are needed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.case("B032")
@pytest.mark.skipif(os.getuid() != 0, reason="only root may count the descriptors of a daemon that is not dumpable")
def test_b032_calls_of_every_end_leave_no_descriptor(start_daemon, mark, nothing_left):
    """Under the least limit there may be. ``DEADLINED_ROUNDS`` asks for more than the suite's share of two thousand."""
    daemon = start_daemon(SMALL, python=("prlimit", f"--nofile={LEAST}:{LEAST}", sys.executable))
    process = psutil.Process(daemon.pid)
    assert process.rlimit(psutil.RLIMIT_NOFILE) == (LEAST, LEAST)
    env = {MARK: mark}
    with Client(daemon.socket) as client:
        _each_end(daemon.socket, client, env)
        before = _settled_descriptors(process)
        for _ in range(int(os.environ.get("DEADLINED_ROUNDS", "60"))):
            _each_end(daemon.socket, client, env)
        nothing_left(mark, 5)
        wait_until(lambda: abs(_settled_descriptors(process) - before) <= 2, "descriptors are not as before")


def _each_end(socket: str, client: Client, env: dict[str, str]) -> None:
    """Five calls: one ends well, one at its deadline, one cannot start, one loses its client, one is cancelled."""
    hangs = {"argv": ["sleep", FOREVER], "env": env}
    assert client.call("shell", {"argv": ["true"]}, deadline_ms=20_000).status == "ok"
    assert client.call("shell", hangs, deadline_ms=15).reason == "time_budget"
    assert client.call("shell", {"argv": ["/no/such/program"]}, deadline_ms=20_000).exit.code == 127
    with Client(socket) as leaving:
        leaving.submit("shell", hangs, deadline_ms=60_000)
    cancelled = client.submit("shell", hangs, deadline_ms=60_000)
    cancelled.cancel()
    assert cancelled.wait(PATIENCE_S).status == "cancelled"


def _settled_descriptors(process: psutil.Process) -> int:
    """The count that does not change for half a second: workers come and go behind the answers."""
    counts = [process.num_fds()]
    wait_until(lambda: counts.append(process.num_fds()) or (len(counts) > 100 and len(set(counts[-100:])) == 1), "rest")
    return counts[-1]


@pytest.mark.case("B032")
@pytest.mark.skipif(os.getuid() != 0, reason="only root may count the descriptors of a daemon that is not dumpable")
def test_b032_near_the_limit_calls_are_refused_by_name(start_daemon):
    daemon = start_daemon(SMALL)
    process = psutil.Process(daemon.pid)
    with Client(daemon.socket) as client:
        usual = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (process.num_fds() // 2, usual[1]))
        refused = client.call("shell", {"argv": ["true"]}, deadline_ms=20_000)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, usual)
        assert (refused.status, refused.reason, refused.delivery) == ("not_executed", "overloaded", "not_delivered")
        assert "open files" in refused.error.message
        assert refused.retryable
        wait_until(lambda: client.call("shell", {"argv": ["true"]}).status == "ok", "it is served again")
