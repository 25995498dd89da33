"""Control groups of workers, where this host lets us make any: ``cgroup.kill`` (v2) ends a fork bomb in one step, and
the memory and pids controllers (v2, else v1) bound what a tool may take.

A fresh group per worker: one that was killed once kills whatever is put into it later. Nothing here is a proof of
death (``cgroup.events`` wakes at most once in 10 ms); that is the pidfd's business.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass, field

from protocol._contracts import Limits
from supervisor.containment import cgroup_files as files


@dataclass(slots=True)
class WorkerGroup:
    """The groups of one worker: directories, the descriptors a child joins through, and the kill switch."""

    directories: list[str] = field(default_factory=list)
    joins: list[int] = field(default_factory=list)
    kill: int | None = None
    memory: str | None = None

    def close_joins(self) -> None:
        """The child has them."""
        for descriptor in self.joins:
            os.close(descriptor)
        self.joins.clear()

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of this group for memory."""
        return self.memory is not None and files.memory_kills(self.memory) > 0

    def remove(self) -> bool:
        """Take the directories away; False while the kernel still holds one (EBUSY: try again later)."""
        if self.kill is not None:
            os.close(self.kill)
            self.kill = None
        while self.directories:
            try:
                os.rmdir(self.directories[-1])
            except FileNotFoundError:
                pass
            except OSError:
                return False
            self.directories.pop()
        return True


class ControlGroups:
    """Where this daemon's groups live. ``why_not``: what is missing, in words for doctor and status."""

    def __init__(self) -> None:
        self._name = f"{files.NAME_PREFIX}{os.getpid()}"
        self._killable: str | None = None
        self._limiting: dict[str, str] = {}
        self._handed_down: files.HandedDown | None = None
        self._unified: frozenset[str] = frozenset()
        self._made: list[str] = []
        self._held: list[int] = []
        self.why_not: list[str] = []

    @property
    def can_kill(self) -> bool:
        """Whether a whole group can be killed in one step."""
        return self._killable is not None

    @property
    def limits(self) -> tuple[str, ...]:
        """Controllers that bound workers here."""
        return tuple(sorted({*self._limiting, *self._unified}))

    @property
    def controllers(self) -> dict[str, str]:
        """The same, with the version of cgroups through which each binds."""
        return dict.fromkeys(self._limiting, "v1") | dict.fromkeys(self._unified, "v2")

    def open(self) -> None:
        """Make the daemon's own groups. What this host refuses is noted in ``why_not``, never raised."""
        mounts = files.mounts()
        own = files.own_groups()
        self._open_v2(mounts.get(""), own.get(""))
        for controller in files.CONTROLLERS:
            if controller not in self._unified:
                self._open_v1(controller, mounts.get(controller), own.get(controller))

    def group_for(self, worker: int, limits: Limits) -> WorkerGroup:
        """A fresh group for a worker about to be forked. Raises OSError when the host stops allowing it."""
        group = WorkerGroup()
        try:
            self._make_group(group, worker, limits)
        except OSError:
            group.close_joins()
            group.remove()
            raise
        return group

    def _make_group(self, group: WorkerGroup, worker: int, limits: Limits) -> None:
        if self._killable is not None:
            directory = self._make(group, os.path.join(self._killable, f"w{worker}"))
            group.joins.append(os.open(f"{directory}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
            group.kill = os.open(f"{directory}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
            self._bound_unified(group, directory, limits)
        for controller, parent in self._limiting.items():
            self._bound(group, controller, parent, worker, limits)

    def close(self) -> bool:
        """Remove the daemon's own groups and its workers'; False when one would not go (a worker is still in it).

        Blocks while the kernel holds the group of a process that has just ended, half a second at most.
        """
        gone = True
        for directory in reversed(self._made):
            gone &= files.remove_soon(directory)
        self._made.clear()
        while self._held:
            os.close(self._held.pop())
        if self._handed_down is not None:
            self._handed_down.give_back()
        return gone

    def _open_v2(self, mount: str | None, own: str | None) -> None:
        if mount is None or own is None:
            self.why_not.append("cgroup v2 is not mounted")
            return
        directory = self._make_own(os.path.join(mount, own.lstrip("/")), "cgroup v2")
        if directory is None:
            return
        if os.access(f"{directory}/cgroup.kill", os.W_OK):
            self._killable = directory
        else:
            self.why_not.append("cgroup v2 has no cgroup.kill here (Linux 5.14)")
        self._handed_down = files.HandedDown(directory)
        self._unified = self._handed_down.controllers

    def _open_v1(self, controller: str, mount: str | None, own: str | None) -> None:
        if mount is None or own is None:
            self.why_not.append(f"no {controller} controller")
            return
        directory = self._make_own(os.path.join(mount, own.lstrip("/")), f"cgroup v1 {controller}")
        if directory is not None:
            self._limiting[controller] = directory

    def _make_own(self, parent: str, what: str) -> str | None:
        """A group of ours below ``parent``, held by a lock until `close`; None, with a reason noted: it cannot be."""
        files.remove_abandoned(parent)
        for attempt in itertools.count():
            directory = os.path.join(parent, self._name + (f".{attempt}" if attempt else ""))
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(directory)
                held = files.take(directory)
            except FileNotFoundError:  # it was taken for abandoned between the two
                continue
            except OSError as error:
                self.why_not.append(f"{what} is not writable: {error.strerror}")
                return None
            if held is not None:  # else a daemon with our pid, in another pid namespace, lives there
                self._made.append(directory)
                self._held.append(held)
                return directory
        return None

    def _make(self, group: WorkerGroup, directory: str) -> str:
        os.mkdir(directory)
        group.directories.append(directory)
        return directory

    def _bound_unified(self, group: WorkerGroup, directory: str, limits: Limits) -> None:
        if "memory" in self._unified and limits.memory_bytes is not None:
            files.write(f"{directory}/memory.max", str(limits.memory_bytes))
            files.write(f"{directory}/memory.oom.group", "1")  # the limit is the call's: it ends as one (Linux 4.19)
            group.memory = directory
        if "pids" in self._unified and limits.pids is not None:
            files.write(f"{directory}/pids.max", str(limits.pids))

    def _bound(self, group: WorkerGroup, controller: str, parent: str, worker: int, limits: Limits) -> None:
        bound = limits.memory_bytes if controller == "memory" else limits.pids
        if bound is None:
            return
        directory = self._make(group, os.path.join(parent, f"w{worker}"))
        files.write(f"{directory}/{'memory.limit_in_bytes' if controller == 'memory' else 'pids.max'}", str(bound))
        group.joins.append(os.open(f"{directory}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        if controller == "memory":
            group.memory = directory
