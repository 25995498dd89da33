"""K04: processes that a kill does not reach: own sessions, other users, other machines, D state, numbers used again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest

from deadlined import Client, _outside
from protocol._worker_messages import Call
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, ROUTES, check_ended, wait_until
from tests.contract.conftest import MARK
from tests.contract.test_exec_signals import frozen
from toolworkers.runners.command import CommandRun

pytestmark = pytest.mark.contract

CONFIG = """
[daemon]
confirm_budget_ms = 300
[tool.chaos]
kind = "python"
module = "toolworkers.chaos"
"""
DOUBLE_FORK = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.closerange(0, 3)
    time.sleep({FOREVER})
    os._exit(0)
os.wait()
"""


# ---------------------------------------------------------------- B021


@pytest.mark.case("B021")
@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", f"(setsid sleep {FOREVER} >/dev/null 2>&1 &) ; exit 0"],
        ["sh", "-c", f"setsid -f sleep {FOREVER} </dev/null >/dev/null 2>&1; exit 0"],
        ["sh", "-c", f"(setsid env -i sleep {FOREVER} >/dev/null 2>&1 &) ; exit 0"],
        ["python3", "-c", DOUBLE_FORK],
    ],
    ids=["sh", "setsid -f", "without its environment", "python3"],
)
def test_b021_no_daemon_of_a_call_outlives_it(calls, argv):
    result = calls.run(*argv)
    assert (result.status, result.exit.code, result.left_processes) == ("ok", 0, 1)


@pytest.mark.case("B021")
def test_b021_nor_one_of_a_python_tool(calls):
    result = calls.tool("chaos_daemon", {})
    assert (result.status, result.left_processes) == ("ok", 1)


@pytest.mark.case("B021")
@pytest.mark.parametrize("route", ROUTES)
def test_b021_nor_does_one_whose_call_is_ended(calls, route):
    code = DOUBLE_FORK + f"time.sleep({FOREVER})"
    check_ended(route, calls.end(route, "shell", calls.arguments("python3", "-c", code), count=2))


@pytest.mark.case("B021")
def test_b021_nor_one_of_exec(run_exec, mark, nothing_left):
    done = run_exec("--deadline", "20s", "--", "sh", "-c", f"(setsid sleep {FOREVER} >/dev/null 2>&1 &) ; exit 0")
    nothing_left(mark)
    assert done.returncode == 0


# ---------------------------------------------------------------- B022, B023


@pytest.mark.case("B022")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a program that is another user's")
def test_b022_a_setuid_program_gains_nothing_and_ends_like_any_other(
    plain_uid_python, open_directory, mark, nothing_left
):
    """What a plain user's daemon could not kill is never born."""
    program = open_directory / "sleep"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    words = [*plain_uid_python, "-m", "deadlined", "exec", "--deadline", "1s", "--", str(program), FOREVER]
    with subprocess.Popen(words, env={**os.environ, MARK: mark}, cwd="/", stderr=subprocess.DEVNULL) as process:
        assert process.wait(PATIENCE_S) == 124
    nothing_left(mark)


# ---------------------------------------------------------------- B025


@pytest.mark.case("B025")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
def test_b025_who_cannot_be_killed_keeps_nobody_waiting(calls, route):
    """A frozen process stands for one in uninterruptible sleep: SIGKILL waits with it (cgroups-v1 freezer)."""
    with frozen() as freeze:
        deadline_ms = 1_500 if route == "deadline" else 60_000
        watched = calls.begin("shell", calls.arguments("sleep", FOREVER), deadline_ms=deadline_ms)
        freeze(str(watched.pid_of("sleep")))
        if route == "cancel":
            watched.handle.cancel()
        result = watched.handle.wait(PATIENCE_S)
        assert (result.status, result.reason) == {
            "deadline": ("killed", "time_budget"),
            "cancel": ("cancelled", "client"),
        }[route]
        assert (result.kill.confirmed, result.kill.confirmed_after_ms) == (False, None)
        assert result.delivery == "unknown"
        assert calls.client.status().degraded != []
        assert calls.client.call("shell", {"argv": ["true"]}, deadline_ms=20_000).status == "ok"
        assert len(_outside.alive(watched.processes)) >= 1, "it was not frozen: nothing is shown"
    watched.check_gone(PATIENCE_S)
    wait_until(lambda: calls.client.status().degraded == [], "it is not watched in the background")


@pytest.mark.case("B025")
def test_b025_nor_the_daemons_own_end(start_daemon):
    daemon = start_daemon("[daemon]\nconfirm_budget_ms = 300\nshutdown_drain_ms = 0\n")
    daemon.expected_exit = 70
    with frozen() as freeze, Client(daemon.socket) as client:
        handle = client.submit("shell", {"argv": ["sleep", FOREVER]}, deadline_ms=60_000)
        wait_until(lambda: [p for p in _outside.tree(daemon.pid) if "sleep" in _outside.describe(p)], "no sleep")
        (sleeper,) = [p for p in _outside.tree(daemon.pid) if "sleep" in _outside.describe(p)]
        freeze(str(sleeper.pid))
        daemon.process.send_signal(signal.SIGTERM)
        assert handle.wait(PATIENCE_S).kill.confirmed is False
        assert daemon.process.wait(PATIENCE_S) == 70


# ---------------------------------------------------------------- B026

REUSED = """
import os, socket, subprocess, time
from protocol import _slots
from supervisor.containment.kill import kill_by_pidfd
from toolworkers._killer import REGISTRATION, Killer

def sleeper():
    return subprocess.Popen(["sleep", "1111"], start_new_session=True)

ours = sleeper()
pidfd = os.pidfd_open(ours.pid)
table = memoryview(bytearray(_slots.table_bytes(4))).cast("Q")
daemon, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
killer = Killer(control, table, os.eventfd(0, os.EFD_NONBLOCK))
socket.send_fds(daemon, [REGISTRATION.pack(1, 7)], [pidfd])
killer._hear()
ours.kill()
ours.wait()
for _ in range(1000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(ours.pid - 1))
    stranger = sleeper()
    if stranger.pid == ours.pid:
        break
    stranger.kill()
    stranger.wait()
assert os.getpgid(stranger.pid) == ours.pid, "the number was not given again"
base = _slots.slot_base(1)
table[base + _slots.GENERATION], table[base + _slots.DEADLINE], table[base + _slots.TERM] = 7, 1, 1
killer.strike()
second = kill_by_pidfd(pidfd)
time.sleep(0.05)
print(second, table[base + _slots.KILLED], stranger.poll())
os.killpg(ours.pid, 9)
print(stranger.wait())
"""


@pytest.mark.case("B026")
def test_b026_a_number_that_was_given_again_is_signalled_by_neither_line():
    """In a pid namespace of its own, whose next number can be chosen; a kill by number does hit the stranger there."""
    namespace = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork"]
    words = [*namespace, "--mount-proc", "--kill-child", sys.executable, "-c", REUSED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "False 0 None\n-9\n", done.stderr


@pytest.mark.case("B026")
def test_b026_a_group_is_signalled_only_while_its_leader_is_uncollected(monkeypatch):
    """A grace's SIGTERM is the only signal to a group. A collected leader's number may be anybody's."""
    signalled, at_collection = [], []
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append((group, number)))
    monkeypatch.setattr(CommandRun, "_wait", lambda run, pid, pidfd: run.terminate() or True)
    monkeypatch.setattr(CommandRun, "_finish", lambda run, pid: at_collection.append(run.terminate()))
    descriptors = [os.open("/dev/null", os.O_RDWR) for _ in range(3)]
    run: Any = CommandRun(Call(1, "shell", "{}", 1, "k", 3), None, descriptors, 0)
    leader = os.getpid()
    run._attend(leader)
    run.terminate()
    run.close()
    assert (signalled, at_collection) == ([(leader, signal.SIGTERM)], [None])
