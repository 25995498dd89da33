"""The witness that asks the kernel and nobody else: who is in a call, and when each of them was dead.

Tools of `bench.tools` report themselves at a socket; the kernel says who connected (SO_PEERCRED, translated into our
pid namespace), and a pidfd is taken at once, so a number that is used again can never be mistaken. A pidfd is readable
when its process is dead. What reports nothing is found in /proc by its parents: in a worker every orphan becomes a
child of the namespace's first process, so a walk down from there meets all.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 1024
_LINE = 256


class Process(NamedTuple):
    """A process found in /proc."""

    pid: int
    parent: int


class Witness:
    """A process under watch. ``deadline_ns``: its call's, as the tool was told; 0 where it was not."""

    __slots__ = ("deadline_ns", "name", "pid", "pidfd")

    def __init__(self, pid: int, name: str = "", deadline_ns: int = 0) -> None:
        self.pid, self.name, self.deadline_ns = pid, name, deadline_ns
        self.pidfd = os.pidfd_open(pid)

    def end(self) -> None:
        """Let go of it; one that should be dead and is not is killed, so that the bench leaves nothing."""
        if not ready(self.pidfd):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)


class Oracle:
    """Hears who is in a call. ``path``: what tools are told to report to."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(_BACKLOG)

    def collect(self, count: int, patience_s: float) -> list[Witness]:
        """Wait until ``count`` processes have reported, or the patience is over; those that live."""
        until = time.monotonic() + patience_s
        found: list[Witness] = []
        for _ in range(count):
            left_s = until - time.monotonic()
            if left_s <= 0 or not ready(self._listener.fileno(), left_s):
                break
            with contextlib.suppress(ProcessLookupError):  # it reported and is dead already
                found.append(self._accept())
        return found

    def gather(self, count: int, patience_s: float) -> list[socket.socket]:
        """The lines of ``count`` tools that hold their workers until it is closed. Raises TimeoutError."""
        until = time.monotonic() + patience_s
        lines: list[socket.socket] = []
        while len(lines) < count:
            if not ready(self._listener.fileno(), max(0.0, until - time.monotonic())):
                raise TimeoutError(f"{len(lines)} of {count} workers were there after {patience_s:g} s")
            lines.append(self._listener.accept()[0])
        return lines

    def close(self) -> None:
        """Hear nobody any more."""
        self._listener.close()

    def _accept(self) -> Witness:
        connection, _ = self._listener.accept()
        with connection:
            packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            name, _, deadline = connection.recv(_LINE).decode().partition(" ")
            return Witness(_CREDENTIALS.unpack(packed)[0], name, int(deadline or 0))


@contextmanager
def open_oracle(directory: Path) -> Iterator[Oracle]:
    """An oracle that listens inside ``directory``."""
    oracle = Oracle(directory / "oracle")
    try:
        yield oracle
    finally:
        oracle.close()


@contextmanager
def watched(witnesses: Iterable[Witness]) -> Iterator[list[Witness]]:
    """Witnesses that are let go at the end, and killed there if they live."""
    held = list(witnesses)
    try:
        yield held
    finally:
        for witness in held:
            witness.end()


def deaths(witnesses: Iterable[Witness], patience_s: float) -> dict[int, int]:
    """When each was seen to be dead, by pid, until all are or the patience is over."""
    poll, by_descriptor = select.poll(), {}
    for witness in witnesses:
        poll.register(witness.pidfd, select.POLLIN)
        by_descriptor[witness.pidfd] = witness.pid
    until, seen = time.monotonic() + patience_s, {}
    while by_descriptor and (left_s := until - time.monotonic()) > 0:
        events = poll.poll(left_s * 1000)
        at = time.monotonic_ns()
        for descriptor, _ in events:
            poll.unregister(descriptor)
            seen[by_descriptor.pop(descriptor)] = at
    return seen


def alive(witnesses: Iterable[Witness]) -> list[Witness]:
    """Those that live now."""
    return [witness for witness in witnesses if not ready(witness.pidfd)]


def ready(descriptor: int, patience_s: float = 0.0) -> bool:
    """Whether a descriptor is readable now, or within the patience."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


# ---------------------------------------------------------------- /proc


def tree(root: int) -> list[Witness]:
    """``root`` and every live descendant, under watch."""
    by_parent: dict[int, list[int]] = {}
    for process in _processes():
        by_parent.setdefault(process.parent, []).append(process.pid)
    queue, found = [root], []
    while queue:
        pid = queue.pop()
        with contextlib.suppress(ProcessLookupError):
            found.append(Witness(pid))
        queue += by_parent.get(pid, [])
    return found


def children(parent: int) -> list[Process]:
    """Its direct children."""
    return [process for process in _processes() if process.parent == parent]


def in_namespace_of(pid: int) -> int | None:
    """The pid namespace of a process, as a number; None where we may not look (a plain uid at a worker)."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def members(namespace: int) -> list[int]:
    """Every process of a pid namespace."""
    return [process.pid for process in _processes() if in_namespace_of(process.pid) == namespace]


def command_line(pid: int) -> str:
    """Its words; empty for what is gone."""
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")


def pids_limit(pid: int) -> int | None:
    """The largest number of tasks that the pids controller allows in its group; None: it is not bounded there."""
    for line in _read(f"/proc/{pid}/cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup") if controllers in ("", "pids") else ():
            limit = _read(f"{root}{path}/pids.max").strip()
            if limit.isdigit():
                return int(limit)
    return None


def _processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The second field is a name in parentheses and may hold anything, so it is read from behind (proc(5)).
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if fields and fields[0] not in (b"Z", b"X"):
                yield Process(int(name), int(fields[1]))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
