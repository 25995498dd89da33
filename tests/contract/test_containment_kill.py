"""`supervisor.containment.kill`: one act through a pidfd, which never hits a stranger."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from supervisor.containment.kill import kill_by_pidfd

pytestmark = pytest.mark.contract


def test_the_process_that_a_pidfd_names_is_killed() -> None:
    with subprocess.Popen(["sleep", "1111"]) as process:
        pidfd = os.pidfd_open(process.pid)
        try:
            assert kill_by_pidfd(pidfd)
            assert process.wait(20) == -signal.SIGKILL
        finally:
            os.close(pidfd)


def test_a_pidfd_of_the_dead_hits_nobody() -> None:
    process = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(process.pid)
    try:
        process.wait(20)
        assert not kill_by_pidfd(pidfd)
    finally:
        os.close(pidfd)
