"""What the kernel's control group files say and take: mounts, our own groups, controllers handed down, memory kills.

Reads and writes files; decides nothing about workers. Sources: cgroups(7), the kernel's cgroup-v2 documentation.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from time import sleep

CONTROLLERS = ("memory", "pids")
NAME_PREFIX = "deadlined."
LEAF = ".leaf"
_LOOKS, _BETWEEN_LOOKS_S = 50, 0.01
_MOUNTS = "/proc/self/mounts"


class HandedDown:
    """The v2 controllers that bind in groups below ``directory``, a child of the group that we are in.

    A group other than the root that holds processes may hand no controller down. When we are alone in ours, as a
    systemd unit with Delegate=yes is, we move into a leaf beside the workers; `give_back` undoes it.
    """

    def __init__(self, directory: str) -> None:
        self._own, self._directory = os.path.dirname(directory), directory
        self._leaf = directory + LEAF
        self._moved = False
        self._enable()
        if not self.controllers and self._alone():
            self._move()
            self._enable()

    @property
    def controllers(self) -> frozenset[str]:
        """Those that arrived."""
        with contextlib.suppress(OSError):
            return frozenset(_read(f"{self._directory}/cgroup.subtree_control").split()) & frozenset(CONTROLLERS)
        return frozenset()

    def give_back(self) -> None:
        """Undo the move; the groups below ``directory`` are gone."""
        if not self._moved:
            return
        for controller in CONTROLLERS:
            with contextlib.suppress(OSError):
                write(f"{self._own}/cgroup.subtree_control", f"-{controller}")
        with contextlib.suppress(OSError):
            write(f"{self._own}/cgroup.procs", str(os.getpid()))
            os.rmdir(self._leaf)

    def _enable(self) -> None:
        for group in (self._own, self._directory):
            for controller in CONTROLLERS:
                with contextlib.suppress(OSError):
                    write(f"{group}/cgroup.subtree_control", f"+{controller}")

    def _alone(self) -> bool:
        with contextlib.suppress(OSError):
            return _read(f"{self._own}/cgroup.procs").split() == [str(os.getpid())]
        return False

    def _move(self) -> None:
        with contextlib.suppress(OSError):
            os.mkdir(self._leaf)
            write(f"{self._leaf}/cgroup.procs", str(os.getpid()))
            self._moved = True


def take(directory: str) -> int | None:
    """The descriptor that marks a group as a living daemon's for as long as it is open; None when another one has it.

    A lock, and not the pid in its name: a daemon in another pid namespace has numbers that mean nothing here. Raises
    FileNotFoundError when the group is not there (any more).
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(directory)  # a group that was removed is locked in vain
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_abandoned(parent: str) -> None:
    """Take away what daemons that were killed left here. rmdir removes empty groups only, so nobody loses a process."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(NAME_PREFIX) and not name.endswith(LEAF):
                _remove_if_abandoned(os.path.join(parent, name))


def _remove_if_abandoned(directory: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = take(directory)
        if descriptor is not None:
            _remove_tree(directory)
            os.close(descriptor)


def remove_soon(directory: str) -> bool:
    """Remove a group and those in it; False when it is still there after `_LOOKS` looks. A group is busy for a moment
    after its last process has been reaped."""
    for _ in range(_LOOKS):
        _remove_tree(directory)
        if not os.path.exists(directory):
            return True
        sleep(_BETWEEN_LOOKS_S)
    return False


def _remove_tree(directory: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(directory + LEAF)
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # one that is busy keeps no other
                    os.rmdir(entry.path)
        os.rmdir(directory)


def memory_kills(directory: str) -> int:
    for name in ("memory.oom_control", "memory.events"):
        with contextlib.suppress(OSError, ValueError), open(os.path.join(directory, name), encoding="ascii") as lines:
            for line in lines:
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    return 0


def mounts() -> dict[str, str]:
    """Mount point by controller; v2 under the empty name."""
    found: dict[str, str] = {}
    with open(_MOUNTS, encoding="utf-8") as lines:
        for line in lines:
            _source, point, kind, options, *_ = line.split(" ")
            if kind == "cgroup2":
                found.setdefault("", point)
            elif kind == "cgroup":
                for controller in CONTROLLERS:
                    if controller in options.split(","):
                        found.setdefault(controller, point)
    return found


def own_groups() -> dict[str, str]:
    """Our group by controller (cgroups(7), /proc/self/cgroup); v2 under the empty name."""
    found: dict[str, str] = {}
    with open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _number, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                found[controller] = path
    return found


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
