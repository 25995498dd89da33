"""Processes that outlived their daemon."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from supervisor.containment.cgroup_files import remove_soon, take
from supervisor.containment.strays import Stray, boot_id, end_strays, start_ticks


@pytest.fixture
def stray() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def recorded(process: subprocess.Popen[bytes], *groups: str) -> Stray:
    return Stray(process.pid, start_ticks(process.pid), boot_id(), groups)


def test_the_process_that_was_recorded_is_ended(stray):
    assert end_strays([recorded(stray)]) == 1
    assert stray.wait(20) == -signal.SIGKILL


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}, {"start_ticks": 0}])
def test_a_stranger_that_has_the_number_now_is_left_alone(stray, change):
    assert end_strays([recorded(stray)._replace(**change)]) == 0
    assert stray.poll() is None


def test_one_that_has_gone_costs_nothing(stray):
    record = recorded(stray)
    stray.kill()
    stray.wait()
    assert end_strays([record, record]) == 0


def test_our_own_start_is_known_whatever_our_name_is():
    assert start_ticks(os.getpid()) > 0
    assert start_ticks(2**22) == 0


@pytest.fixture
def group() -> Iterator[str]:
    """A worker's control group below one of the test's own (v1 pids or v2), where this host lets us make one."""
    for parent in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        directory = f"{parent}/deadlined-test-{os.getpid()}"
        if os.path.exists(f"{parent}/cgroup.procs") and os.access(parent, os.W_OK):
            os.makedirs(f"{directory}/w1")
            yield f"{directory}/w1"
            assert remove_soon(directory)
            return
    pytest.skip("no control group can be made here")


def test_everybody_in_a_recorded_group_is_ended_and_the_group_goes(stray, group):
    with open(f"{group}/cgroup.procs", "w", encoding="ascii") as procs:
        procs.write(str(stray.pid))
    assert end_strays([Stray(2**22, 1, boot_id(), (group,))]) >= 1
    assert stray.wait(20) == -signal.SIGKILL
    assert not os.path.exists(group) or end_strays([Stray(2**22, 1, boot_id(), (group,))]) == 0


def test_a_group_whose_name_a_living_daemon_uses_now_is_left_alone(stray, group):
    with open(f"{group}/cgroup.procs", "w", encoding="ascii") as procs:
        procs.write(str(stray.pid))
    held = take(os.path.dirname(group))
    assert held is not None
    try:
        assert end_strays([Stray(2**22, 1, boot_id(), (group,))]) == 0
        assert stray.poll() is None
    finally:
        os.close(held)
        stray.kill()
        stray.wait()
