"""What the processes of a tree use, seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from supervisor.containment.census import Census


@pytest.mark.contract
def test_a_tree_is_counted_as_far_as_it_is_looked_at():
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & echo ready; wait"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    try:
        assert shell.stdout.readline() == b"ready\n"
        census = Census()
        seen = census.of(shell.pid, 1)
        assert seen.processes == 3
        assert seen.rss_bytes > 4096
    finally:
        with open(f"/proc/{shell.pid}/task/{shell.pid}/children") as children:
            sleepers = [os.pidfd_open(int(pid)) for pid in children.read().split()]
        for sleeper in sleepers:
            signal.pidfd_send_signal(sleeper, signal.SIGKILL)
            os.close(sleeper)
        shell.kill()
        shell.wait()
        shell.stdout.close()
    assert census.of(shell.pid, 2) == seen, "remembered for a while"
    assert census.of(shell.pid, 10**9).processes == 0


def test_nobody_uses_nothing():
    assert Census().of(2**22 + 1, 1).processes == 0
