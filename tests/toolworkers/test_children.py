"""Direct children, and the sweep of a worker without a namespace. (Whole trees: tests/contract/test_levels.py.)"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from toolworkers import _world as world
from toolworkers._children import direct_children
from toolworkers._kindred import kindred, open_same

ALONE = """
import os, subprocess, sys, time
from toolworkers import _syscalls, _world as world
from toolworkers._children import direct_children
"""


def in_a_process_of_its_own(script: str) -> str:
    """A sweep ends every child of the process: this one's are not its business."""
    done = subprocess.run([sys.executable, "-c", ALONE + script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_children_of_every_thread_are_listed_alive_or_dead():
    alive = subprocess.Popen(["sleep", "1000"])
    dead = subprocess.Popen(["true"])
    started: list[subprocess.Popen[bytes]] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: (started.append(subprocess.Popen(["sleep", "1000"])), stop.wait()))
    thread.start()
    try:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        while not started:
            time.sleep(0.001)
        assert {alive.pid, dead.pid, started[0].pid} <= set(direct_children())
    finally:
        stop.set()
        thread.join()
        for process in (alive, *started):
            process.kill()
            process.wait()
        dead.wait()
    assert not {alive.pid, dead.pid} & set(direct_children())


def test_a_sweep_without_a_namespace_ends_children_and_orphans_and_counts_them():
    script = """
_syscalls.become_subreaper()
subprocess.Popen(["sh", "-c", "sleep 1000 & (setsid sleep 1000 &) ; exit 0"]).wait()
subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM; sleep 1000; sleep 1000"])
while len(direct_children()) < 3: time.sleep(0.001)
time.sleep(0.1)
swept = world.sweep(world.NO_NAMESPACE)
print(swept.killed, swept.clean, direct_children())
"""
    assert in_a_process_of_its_own(script) == "4 True []"


def test_a_sweep_of_one_whose_orphans_go_elsewhere_is_never_clean():
    assert in_a_process_of_its_own("print(world.sweep(world.NO_NAMESPACE).clean)") == "False"


def test_a_sweep_does_not_count_who_had_died_by_itself():
    script = """
_syscalls.become_subreaper()
child = subprocess.Popen(["sh", "-c", "kill -9 $$"])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
swept = world.sweep(world.NO_NAMESPACE)
print(swept.killed, swept.clean)
"""
    assert in_a_process_of_its_own(script) == "0 True"


def test_a_kill_of_children_spares_who_is_to_be_spared():
    script = """
spared, other = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
print(world.kill_children(frozenset([spared.pid])) == [other.pid], other.wait(), spared.poll())
spared.kill()
"""
    assert in_a_process_of_its_own(script) == "True -9 None"


def test_kindred_are_found_by_descent_session_and_group_and_a_daemon_is_not():
    odd = f"{1000 + os.getpid()}.{time.monotonic_ns() % 1_000_000}"  # nobody else sleeps that long
    script = f"sleep 1000 & (setsid sleep {odd} & echo) ; sleep 1002 & wait"
    with subprocess.Popen(["setsid", "sh", "-c", script], stdout=subprocess.PIPE) as root:
        try:
            assert root.stdout.readline() == b"\n"
            sleeps = {b"sleep\x001000\0", b"sleep\x001002\0"}
            # Until everybody is what it is going to be: each was the shell's copy, and one left it for a session.
            while {_command(str(one.pid)) for one in kindred({root.pid}, None)} - {_command(str(root.pid))} != sleeps:
                time.sleep(0.001)
            sessions: set[int] = set()
            found = kindred({root.pid}, sessions)
            assert {one.session for one in found} == {root.pid} == sessions
            assert len(kindred({root.pid}, None)) == len(found)
        finally:
            assert world.end_kindred({root.pid}, set()) >= 3
            left = [
                int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _command(pid).endswith(f"{odd}\0".encode())
            ]
            for pid in left:
                os.kill(pid, 9)
    assert len(left) == 1


def _command(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_number_that_is_another_process_by_now_is_not_opened():
    with subprocess.Popen(["sleep", "1000"]) as process:
        (found,) = kindred({process.pid}, None)
        found.started -= 1
        assert open_same(found) is None
        process.kill()
        process.wait()
        assert open_same(found) is None


@pytest.mark.parametrize("outer", [0, world.pid_namespace()])
def test_only_the_word_for_no_namespace_means_children(outer):
    with pytest.raises(RuntimeError, match="own pid namespace"):
        world.sweep(outer)
