"""`deadlined.testing` and its example: what chaos tests of users stand on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined import Client
from deadlined.testing import ChaosDaemon, open_chaos_daemon
from tests.contract.conftest import REPOSITORY

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def chaos() -> Iterator[ChaosDaemon]:
    with open_chaos_daemon() as daemon:
        yield daemon


@pytest.fixture
def client(chaos: ChaosDaemon) -> Iterator[Client]:
    with chaos.client() as client:
        yield client


def test_the_example_suite_passes_from_any_place(tmp_path: Path) -> None:
    suite = shutil.copytree(REPOSITORY / "examples" / "chaos_tests", tmp_path / "suite")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(suite)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_a_call_that_runs_is_a_survivor_by_name_and_one_that_has_ended_is_none(
    chaos: ChaosDaemon, client: Client
) -> None:
    chaos.assert_no_survivors()
    command = client.submit("shell", {"argv": ["sleep", "271828"]}, deadline_ms=100_000)
    children = client.submit("chaos_fork", {"count": 2, "then": "hang"}, deadline_ms=100_000)
    until = time.monotonic() + 20
    while len(chaos.survivors()) < 2 + 3:  # two workers, a command, two children
        assert time.monotonic() < until, chaos.survivors()
        time.sleep(0.02)
    with pytest.raises(AssertionError, match=r"^5 processes of calls are alive: .*sleep 271828"):
        chaos.assert_no_survivors(within_s=0)
    for call in (command, children):
        call.cancel()
        call.wait()
    chaos.assert_no_survivors()


def test_a_worker_that_is_killed_is_a_crash_and_only_that_of_a_running_call_can_be(
    chaos: ChaosDaemon, client: Client
) -> None:
    call = client.submit("chaos_sleep", deadline_ms=100_000)
    pid = chaos.kill_worker(call)
    assert (call.wait().status, call.wait().reason) == ("crashed", "worker_lost")
    assert not os.path.exists(f"/proc/{pid}")
    with pytest.raises(LookupError):
        chaos.kill_worker(call)


def test_a_daemon_that_lives_is_not_started_again(chaos: ChaosDaemon) -> None:
    with pytest.raises(RuntimeError, match="lives"):
        chaos.start_again()


def test_a_daemon_that_somebody_else_has_ended_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="the daemon ended with -9"):
        play_with_a_daemon_that_dies()


def play_with_a_daemon_that_dies() -> None:
    with open_chaos_daemon() as daemon:
        os.kill(daemon.pid, signal.SIGKILL)
