"""Public cases, chapter K09: exit status and reaping."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deadlined import Client
from tests.contract.cases.by_deadline import killed_after
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

ENOUGH_MS = 20_000
HERE = os.path.dirname(__file__)
CONFIG = (
    f'[tool.collected]\nkind = "python"\nmodule = "case_thieves"\npath = ["{HERE}"]\n'
    '[tool.chaos_exit]\nkind = "python"\nmodule = "toolworkers.chaos"\n'
)


# ---------------------------------------------------------------- B052


@pytest.mark.case("B052")
@pytest.mark.parametrize("code", [42, 0])
@pytest.mark.parametrize("at_once", [False, True], ids=["later", "at once"])
@pytest.mark.parametrize("by", ["kernel", "thread"])
def test_b052_an_exit_status_that_somebody_else_collected_is_unknown_and_never_0(client, code, at_once, by):
    """The tool's own code has told the kernel to collect the worker's children, or a thread of it waits for them."""
    result = client.call("collected", {"code": code, "at_once": at_once, "by": by}, deadline_ms=ENOUGH_MS)
    if by == "thread" and result.exit.code is not None:
        assert result.exit.code == code  # the worker was faster, and knows
        return
    assert (result.status, result.delivery) == ("error", "unknown")
    assert (result.exit.code, result.exit.signal, result.error.code) == (None, None, "exit_unknown")
    assert result.output.view == "ran\n"
    assert client.call("shell", {"argv": ["sh", "-c", "exit 7"]}, deadline_ms=ENOUGH_MS).exit.code == 7


@pytest.mark.case("B052")
@pytest.mark.parametrize("kind", ["ignores", "handles"])
def test_b052_a_module_that_has_children_collected_elsewhere_takes_no_status_from_the_daemon(start_daemon, kind):
    """SIGCHLD ignored, or a handler that waits for any child, set while the tools' module is imported."""
    config = f'[tool.nothing]\nkind = "python"\nmodule = "case_{kind}_children"\npath = ["{HERE}"]\n'
    daemon = start_daemon(config + '[tool.chaos_exit]\nkind = "python"\nmodule = "toolworkers.chaos"\n')
    with Client(daemon.socket) as client:
        for code in (42, 0):
            result = client.call("shell", {"argv": ["sh", "-c", f"exit {code}"]}, deadline_ms=ENOUGH_MS)
            assert (result.status, result.exit.code) == ("ok" if code == 0 else "error", code)
            crashed = client.call("chaos_exit", {"code": code}, deadline_ms=ENOUGH_MS)
            assert (crashed.status, crashed.reason, crashed.exit.code) == ("crashed", "worker_lost", code)
        assert client.status().degraded == []


@pytest.mark.case("B052")
def test_b052_a_helpers_status_that_somebody_else_collected_ends_the_wait_and_is_not_0():
    """The daemon's own child: its end is known by its pidfd, its status by nobody."""
    from supervisor.containment.launch import Helper

    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 42"], os.environ)
    helper = Helper(pid, os.pidfd_open(pid))
    assert os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) == 42
    assert helper.reap() is None


# ---------------------------------------------------------------- B053


@pytest.mark.case("B053")
@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "HUP", "RTMIN+3"])
def test_b053_a_command_that_a_signal_ended_is_not_ok_and_nobody_of_ours_sent_it(client, name):
    script = f"echo half; kill -{name} $$; echo never"
    result = client.call("shell", {"argv": ["bash", "-c", script]}, deadline_ms=ENOUGH_MS)
    expected = "SIG37" if name == "RTMIN+3" else f"SIG{name}"
    assert (result.status, result.exit.code, result.exit.signal) == ("error", None, expected)
    assert (result.reason, result.kill, result.error.code) == (None, None, "signal")
    assert result.output.view == "half\n"
    assert expected in result.error.message


@pytest.mark.case("B053")
def test_b053_a_kill_of_ours_says_so(client, open_directory):
    point = open_directory / "printed"
    arguments = {"argv": ["sh", "-c", f"echo half; touch {point}; exec sleep 600"]}
    result = killed_after(point, client, "shell", arguments).wait()
    assert (result.status, result.exit.code, result.exit.signal) == ("killed", None, "SIGKILL")
    assert result.reason == "time_budget"
    assert result.kill.confirmed
    assert result.output.view == "half\n"


EATER = "import os\nos.write(1, b'half\\n')\nheld = []\nwhile True: held.append(bytearray(b'x') * (1 << 20))\n"


@pytest.fixture(scope="module")
def little_memory() -> Iterator[TestedDaemon]:
    """A daemon whose calls may have 128 MiB each, where this host can hold them to it."""
    with open_daemons() as start:
        daemon = start("[limits]\nmemory_bytes = 134217728\n")
        if "memory" not in (daemon.directory / "daemon.log").read_text():
            pytest.skip("this host gives no memory controller to the tests' uid: there is no limit to reach")
        yield daemon


@pytest.mark.case("B053")
@pytest.mark.parametrize("tool", ["script", "python"])
def test_b053_a_kill_by_the_kernel_for_memory_says_so_and_keeps_what_was_printed(little_memory, tool):
    arguments: dict[str, Any] = {"code": EATER} if tool == "python" else {"text": EATER, "interpreter": "python3"}
    with Client(little_memory.socket) as client:
        result = client.call(tool, arguments, deadline_ms=60_000)
        assert (result.status, result.reason, result.error.code) == ("killed", "memory_limit", "memory_limit")
        assert result.exit.code is None
        assert result.output.view == "half\n"


# ---------------------------------------------------------------- B054

CALLS = int(os.environ.get("DEADLINED_B054_CALLS", "60"))
DOUBLE_FORK = "(setsid sh -c 'sleep 0.01 & sleep 600 & exit' >/dev/null 2>&1 &) ; echo started"
IN_PYTHON = (
    "import os, time\nfor _ in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
    "    time.sleep(600 if _ else 0); os._exit(0)\n"
)


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def zombies(pid: int) -> list[psutil.Process]:
    """Among the processes below ``pid``: the dead whom nobody has collected. A worker that is just ending is one for a
    moment; what stays is meant."""
    found = []
    for process in below(pid):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def settle(look: Callable[[], bool], what: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not look():
        assert time.monotonic() < until, what()
        time.sleep(0.02)


def make_calls_that_leave_children(client: Client, count: int) -> None:
    for number in range(count):
        if number % 3:
            result = client.call("shell", {"argv": ["sh", "-c", DOUBLE_FORK]}, deadline_ms=ENOUGH_MS)
        else:
            result = client.call("python", {"code": IN_PYTHON}, deadline_ms=ENOUGH_MS)
        assert result.status in ("ok", "no_result"), result.error


@pytest.mark.case("B054")
def test_b054_calls_that_leave_daemons_leave_no_process_and_no_zombie(client, module_daemon):
    make_calls_that_leave_children(client, 3)
    settle(lambda: client.status().idle_workers >= 2, client.status)
    before = len(below(module_daemon.pid))
    make_calls_that_leave_children(client, CALLS)
    settle(lambda: not zombies(module_daemon.pid), lambda: zombies(module_daemon.pid))
    settle(lambda: len(below(module_daemon.pid)) <= before + 2, lambda: below(module_daemon.pid))


@pytest.fixture
def first_process() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A daemon that is pid 1 of its pid namespace, as in a container without an init; and its socket."""
    if os.getuid() != 0:
        pytest.skip("the tests' uid may make no pid namespace to be the first process of")
    import tempfile

    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    socket = str(directory / "s")
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "deadlined", "serve"]
    process = subprocess.Popen(
        [*words, "--socket", socket], env={**os.environ, "XDG_STATE_HOME": str(directory)}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready {socket}\n".encode()
        yield process, socket
    finally:
        for child in psutil.Process(process.pid).children():
            child.terminate()
        process.wait(30)
        process.stdout.close()  # type: ignore[union-attr]  # asserted above
        shutil.rmtree(directory)


@pytest.mark.case("B054")
def test_b054_a_daemon_that_is_the_first_process_collects_everybody_too(first_process):
    process, socket = first_process
    with Client(socket) as client:
        make_calls_that_leave_children(client, 9)
        settle(lambda: not zombies(process.pid), lambda: zombies(process.pid))
        rows = len(client.processes())
    # unshare, the daemon, its killer, its zygote's two processes, one child forked ahead, and the workers
    settle(lambda: len(below(process.pid)) <= 5 + rows + 1, lambda: below(process.pid))


# ---------------------------------------------------------------- B055


@pytest.mark.case("B055")
@pytest.mark.parametrize("code", [1, 124, 125, 126, 127, 137, 143, 255])
def test_b055_a_code_that_looks_like_a_kill_is_the_programs_own(client, code):
    result = client.call("shell", {"argv": ["sh", "-c", f"exit {code}"]}, deadline_ms=ENOUGH_MS)
    assert (result.status, result.reason, result.kill) == ("error", None, None)
    assert (result.exit.code, result.exit.signal) == (code, None)
    assert (result.error.class_, result.error.code, result.delivery) == ("feedback", "exit", "failed_definite")


@pytest.mark.case("B055")
def test_b055_a_deadline_has_no_exit_code_and_the_command_line_keeps_the_two_apart(client, module_daemon):
    killed = client.submit("shell", {"argv": ["sleep", "600"]}, deadline_ms=500)
    result = killed.wait()
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert (result.exit.code, result.exit.signal, result.error.code) == (None, "SIGKILL", "deadline")
    words = ["call", "shell", '{"argv": ["sh", "-c", "exit 124"]}', "--deadline", "20s"]
    assert command_line(module_daemon, *words).returncode == 1
    assert (
        command_line(module_daemon, "call", "shell", '{"argv": ["sleep", "600"]}', "--deadline", "300ms").returncode
        == 124
    )


def command_line(daemon: TestedDaemon, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEADLINED_SOCKET": daemon.socket}
    argv = [sys.executable, "-m", "deadlined", *words]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
