"""Control groups on the kernel's own files, with whatever controller this host has to give."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import Limits
from supervisor.containment import cgroup_files as files
from supervisor.containment.cgroups import ControlGroups

pytestmark = pytest.mark.contract


def unified() -> Path:
    mount = files.mounts().get("")
    if mount is None or not os.access(mount, os.W_OK) or os.getuid() != 0:
        pytest.skip("no cgroup v2 that the tests' uid may write to")
    return Path(mount)


@pytest.fixture
def service() -> Iterator[Path]:
    """A group like that of a systemd unit with Delegate=yes."""
    group = unified() / f"deadlined-test-{os.getpid()}"
    group.mkdir()
    yield group
    for leaf in group.iterdir():
        if leaf.is_dir():
            leaf.rmdir()
    group.rmdir()


MOVE = """
import os, sys
from supervisor.containment import cgroup_files as files
files.CONTROLLERS = (sys.argv[2],)
own = sys.argv[1]
open(own + "/cgroup.procs", "w").write(str(os.getpid()))
directory = f"{own}/deadlined.{os.getpid()}"
os.mkdir(directory)
handed = files.HandedDown(directory)
print(sorted(handed.controllers), files.own_groups()[""].endswith(".leaf"))
os.rmdir(directory)
handed.give_back()
print(files.own_groups()[""], os.listdir(own).count(f"deadlined.{os.getpid()}.leaf"))
"""


def test_a_service_that_is_alone_hands_controllers_down_and_leaves_no_trace(service):
    controllers = (unified() / "cgroup.controllers").read_text().split()
    if not controllers:
        pytest.skip("cgroup v2 has no controller here")
    root, controller = unified() / "cgroup.subtree_control", controllers[0]
    was_on = controller in root.read_text().split()
    root.write_text(f"+{controller}")
    try:
        argv = [sys.executable, "-c", MOVE, str(service), controller]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    finally:
        if not was_on:
            root.write_text(f"-{controller}")
    assert said == [f"['{controller}'] True", f"/{service.name} 0"]


def test_a_workers_group_is_joined_killed_and_removed():
    groups = ControlGroups()
    groups.open()
    try:
        if not groups.can_kill:
            pytest.skip(f"no group can be killed here: {groups.why_not}")
        group = groups.group_for(7, Limits(pids=50))
        child = subprocess.Popen(["sleep", "1000"])
        for join in group.joins:
            os.write(join, str(child.pid).encode())
        group.close_joins()
        assert group.kill is not None
        os.write(group.kill, b"1")
        assert child.wait(10) == -9
        assert not group.out_of_memory()
        directories = list(group.directories)
        while not group.remove():
            pass
        assert not any(os.path.exists(directory) for directory in directories)
    finally:
        assert groups.close()


def test_what_a_killed_daemon_left_is_swept_and_a_living_ones_is_not(service):
    for name in ("killed", "living"):
        (service / f"deadlined.{name}" / "w1").mkdir(parents=True)
    held = files.take(str(service / "deadlined.living"))
    assert held is not None
    try:
        files.remove_abandoned(str(service))
        assert not (service / "deadlined.killed").exists()
        assert (service / "deadlined.living" / "w1").exists()
    finally:
        os.close(held)
    files.remove_abandoned(str(service))
    assert not (service / "deadlined.living").exists()


def test_two_daemons_with_one_number_have_groups_of_their_own():
    one, other = ControlGroups(), ControlGroups()
    one.open()
    other.open()
    try:
        assert one.can_kill == other.can_kill
        if not one.can_kill:
            pytest.skip(f"no group can be killed here: {one.why_not}")
        groups = [daemon.group_for(7, Limits()) for daemon in (one, other)]
        assert set(groups[0].directories).isdisjoint(groups[1].directories)
        for group in groups:
            group.close_joins()
            assert group.remove()
    finally:
        assert one.close()
        assert other.close()
