"""Processes that an earlier life of this daemon started and that may have outlived it: known by pid, start time and
boot, because a pid alone may be a stranger's by now, and by their control groups, which are nobody else's.

Nothing is left where workers live in namespaces or under guards, which end with the daemon; where neither holds them,
and after a fault of ours, this is what ends them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from time import sleep
from typing import NamedTuple

from supervisor.clock import now_ns
from supervisor.containment.cgroup_files import take
from supervisor.containment.kill import kill_by_pidfd

_GROUP_BUDGET_NS = 1_000_000_000
_TRIES = 20


class Stray(NamedTuple):
    """A recorded process. ``start_ticks``: field 22 of proc(5)'s stat. ``groups``: its control groups' directories."""

    pid: int
    start_ticks: int
    boot_id: str
    groups: tuple[str, ...]


def boot_id() -> str:
    """What the kernel calls its present boot: no process is older."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks after the boot; 0 when it has gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])  # its name may hold anything, brackets too
    return 0


def end_strays(strays: Iterable[Stray]) -> int:
    """Kill those that still run and remove their groups; how many were signalled. Blocking, bounded."""
    here, killed = boot_id(), 0
    for stray in strays:
        if stray.boot_id == here:
            killed += _end_if_the_same(stray.pid, stray.start_ticks)
            for group in stray.groups:
                killed += _empty_group(group)
    return killed


def _end_if_the_same(pid: int, ticks: int) -> int:
    """The pidfd first: what it names cannot change any more, so a start time read after it is that process's."""
    with _open(pid) as pidfd:
        if pidfd is not None and ticks and start_ticks(pid) == ticks:
            return _kill(pidfd)
    return 0


def _empty_group(directory: str) -> int:
    """Kill whoever is in a group that we made, until nobody is, and remove it. A group whose daemon lives (the one
    above is locked) is not ours any more: ours has gone, and its name was used again."""
    for _ in range(_TRIES):  # a daemon that sweeps holds it for a moment as well
        try:
            held = take(os.path.dirname(directory))
        except OSError:
            return 0
        if held is not None:
            break
        sleep(0.002)
    else:
        return 0
    try:
        return _end_members(directory)
    finally:
        os.close(held)


def _end_members(directory: str) -> int:
    killed, until = 0, now_ns() + _GROUP_BUDGET_NS
    while (members := _members(directory)) and now_ns() < until:
        for pid in members:
            with _open(pid) as pidfd:
                if pidfd is not None and pid in _members(directory):
                    killed += _kill(pidfd)
        sleep(0.002)
    with contextlib.suppress(OSError):
        os.rmdir(directory)
    return killed


def _kill(pidfd: int) -> bool:
    try:
        return kill_by_pidfd(pidfd)
    except PermissionError:  # it has become another user's: it is beyond us, and none of our doing
        return False


def _members(directory: str) -> list[int]:
    with contextlib.suppress(OSError, ValueError), open(f"{directory}/cgroup.procs", encoding="ascii") as file:
        return [pid for pid in map(int, file) if pid > 0]
    return []


@contextlib.contextmanager
def _open(pid: int) -> Iterator[int | None]:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield pidfd
    finally:
        os.close(pidfd)
