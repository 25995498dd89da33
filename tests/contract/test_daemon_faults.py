"""What happens to calls when a process of the daemon's own is killed or stopped: nothing is left, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from deadlined import Client
from tests.contract.conftest import MARK, TestedDaemon

pytestmark = pytest.mark.contract

ESCAPES = "i=0; while [ $i -lt 10 ]; do setsid sleep 1000 & (sleep 1000 &) ; i=$((i+1)); done; sleep 1000"


def shell(mark: str, script: str) -> dict[str, Any]:
    return {"argv": ["sh", "-c", script], "env": {MARK: mark}}


def helpers(daemon: TestedDaemon, role: str) -> list[psutil.Process]:
    """The daemon's direct children that run as ``role``."""
    children = psutil.Process(daemon.pid).children()
    return [child for child in children if f"toolworkers {role} " in " ".join(child.cmdline())]


def wait_until(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.005)


def test_a_killed_daemon_takes_twenty_escaped_processes_with_it(daemon, mark, somebody_alive, nothing_left):
    daemon.expected_exit = None
    with Client(daemon.socket) as client:
        client.submit("shell", shell(mark, ESCAPES), deadline_ms=60_000)
        somebody_alive(mark, 20)
        os.kill(daemon.pid, signal.SIGKILL)
        nothing_left(mark, patience_s=5)


def test_a_stopped_daemon_does_not_stop_the_deadline(daemon, mark, somebody_alive, nothing_left):
    with Client(daemon.socket) as client:
        handle = client.submit("shell", shell(mark, "setsid sleep 1000 & sleep 1000"), deadline_ms=1_500)
        somebody_alive(mark, 2)
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            nothing_left(mark, patience_s=10)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        result = handle.wait()
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert result.kill.confirmed


def test_an_answer_that_waited_out_its_deadline_in_a_stopped_daemon_is_not_ok(daemon):
    with Client(daemon.socket) as client:
        handle = client.submit("shell", {"argv": ["sleep", "0.5"]}, deadline_ms=2_000)
        while not any(row.call == handle.call and row.state == "busy" for row in client.processes()):
            time.sleep(0.002)
        os.kill(daemon.pid, signal.SIGSTOP)
        time.sleep(2.2)
        os.kill(daemon.pid, signal.SIGCONT)
        result = handle.wait()
        assert (result.status, result.reason) == ("killed", "time_budget")
        assert client.call("shell", {"argv": ["true"]}).status == "ok"


def test_without_its_killer_deadlines_hold_and_calls_go_on(daemon, mark, somebody_alive, nothing_left):
    with Client(daemon.socket) as client:
        handle = client.submit("shell", shell(mark, "setsid sleep 1000 & sleep 1000"), deadline_ms=1_200)
        somebody_alive(mark, 2)
        (killer,) = helpers(daemon, "killer")
        killer.kill()
        result = handle.wait()
        nothing_left(mark)
        assert (result.status, result.reason) == ("killed", "time_budget")
        assert client.call("shell", {"argv": ["true"]}).status == "ok"
        wait_until(lambda: not client.status().degraded, "another killer is armed")
        assert [child.pid for child in helpers(daemon, "killer")] != [killer.pid]


def test_a_killer_that_is_stopped_is_stood_in_for(daemon, mark, somebody_alive, nothing_left):
    (killer,) = helpers(daemon, "killer")
    with Client(daemon.socket) as client:
        handle = client.submit("shell", shell(mark, "setsid sleep 1000 & sleep 1000"), deadline_ms=1_200)
        somebody_alive(mark, 2)
        killer.suspend()
        try:
            result = handle.wait()
        finally:
            killer.resume()
        nothing_left(mark)
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert result.kill.confirmed


def test_a_killed_zygote_ends_its_calls_and_another_serves_the_next(daemon, mark, somebody_alive, nothing_left):
    with Client(daemon.socket) as client:
        handle = client.submit("shell", shell(mark, ESCAPES), deadline_ms=60_000)
        somebody_alive(mark, 20)
        (zygote,) = helpers(daemon, "zygote")
        zygote.kill()
        result = handle.wait()
        nothing_left(mark)
        assert (result.status, result.reason, result.delivery) == ("crashed", "worker_lost", "unknown")
        assert client.call("shell", {"argv": ["echo", "again"]}, deadline_ms=30_000).output.view == "again\n"


def test_a_killed_worker_costs_its_own_call_only(daemon, mark, somebody_alive, nothing_left):
    other = mark.replace("mark", "other")
    with Client(daemon.socket) as client:
        victim = client.submit("shell", shell(mark, "sleep 1000"), deadline_ms=60_000)
        bystander = client.submit("shell", shell(other, "sleep 1; echo alive"), deadline_ms=60_000)
        somebody_alive(mark)
        (row,) = [row for row in client.processes() if row.call == victim.call]
        os.kill(row.pid, signal.SIGKILL)
        assert victim.wait().status == "crashed"
        nothing_left(mark)
        assert bystander.wait().output.view == "alive\n"


def test_sigterm_drains_and_a_second_one_does_not_wait(start_daemon, mark, somebody_alive, nothing_left):
    draining = start_daemon("[daemon]\nshutdown_drain_ms = 60000\n")
    with Client(draining.socket) as client:
        short = client.submit("shell", {"argv": ["sh", "-c", "sleep 0.5; echo done"]}, deadline_ms=60_000)
        long = client.submit("shell", shell(mark, "setsid sleep 1000 & sleep 1000"), deadline_ms=60_000)
        somebody_alive(mark, 2)
        os.kill(draining.pid, signal.SIGTERM)
        assert short.wait().output.view == "done\n"
        assert client.call("shell", {"argv": ["true"]}).reason == "shutdown"
        os.kill(draining.pid, signal.SIGTERM)
        result = long.wait()
        assert (result.status, result.reason) == ("cancelled", "shutdown")
        nothing_left(mark)


def has_helper(daemon: int) -> bool:
    """Whether a daemon has started its first helper (importing Trio starts a child too, and it is none)."""
    try:
        return any("toolworkers" in child.cmdline() for child in psutil.Process(daemon).children())
    except psutil.Error:
        return False


def test_sigterm_while_starting_ends_clean(tmp_path):
    for pause_s in (0.0, 0.1, 0.25, 0.4):
        argv = [sys.executable, "-m", "deadlined", "serve", "--socket", str(tmp_path / "run" / "s")]
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        (tmp_path / "run").mkdir(mode=0o700, exist_ok=True)
        daemon = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda d=daemon: has_helper(d.pid), "its first helper")
            time.sleep(pause_s)
            daemon.terminate()
            _, err = daemon.communicate(timeout=30)
        finally:
            daemon.kill()
        assert daemon.returncode == 0, err
