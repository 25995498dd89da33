"""What the processes of a worker use, for people who look (`ps`, `top`). Read from /proc; nothing is decided by it.

The loop waits while this is read, so it is bounded: the tree is followed by the kernel's own lists of children (a walk
over all processes of the host took a second with thirty busy workers), only so far, and no more often than said.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from protocol._deadlines import NS_PER_MS
from supervisor.clock import now_ns

_MOST = 64
_FRESH_NS = 250 * NS_PER_MS
_TASKS_FRESH_NS = 1_000 * NS_PER_MS
_NO_THREADS = 2
"""Links of a task directory without a thread: itself, and its entry above."""
_REMEMBERED = 1_024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_MS = 1_000 // os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _RSS = 11, 12, 21
"""Fields of /proc/PID/stat behind the name (proc(5))."""


class Usage(NamedTuple):
    """Of a worker and all below it, of the first 64 of them: how many, resident bytes, processor time."""

    processes: int
    rss_bytes: int
    cpu_ms: int


class Census:
    """Remembers what it has read for a quarter of a second."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Usage]] = {}

    def of(self, pid: int, now_ns: int) -> Usage:
        """The usage of a worker; zeros when it has ended."""
        read_ns, usage = self._known.get(pid, (0, Usage(0, 0, 0)))
        if not read_ns or now_ns - read_ns > _FRESH_NS:
            usage = _read(pid)
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[pid] = now_ns, usage
        return usage


_tasks: dict[int, tuple[int, int]] = {}


def tasks_of(uid: int) -> int:
    """Processes and threads of a user on this host, as they were within the last second: a look takes 10 ms."""
    read_ns, count = _tasks.get(uid, (0, 0))
    if not read_ns or now_ns() - read_ns > _TASKS_FRESH_NS:
        count = sum(_threads_of(pid, uid) for pid in os.listdir("/proc") if pid.isdigit())
        _tasks[uid] = now_ns(), count
    return count


def _threads_of(pid: str, uid: int) -> int:
    with contextlib.suppress(OSError):
        if os.stat(f"/proc/{pid}").st_uid == uid:
            return os.stat(f"/proc/{pid}/task").st_nlink - _NO_THREADS
    return 0


def _read(pid: int) -> Usage:
    found, family = Usage(0, 0, 0), [pid]
    while family and found.processes < _MOST:
        member = family.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended while we looked
            fields = _text(f"/proc/{member}/stat").rpartition(b")")[2].split()
            rss = int(fields[_RSS]) * _PAGE_BYTES
            cpu = (int(fields[_UTIME]) + int(fields[_STIME])) * _TICK_MS
            found = Usage(found.processes + 1, found.rss_bytes + rss, found.cpu_ms + cpu)
            for thread in os.listdir(f"/proc/{member}/task")[:_MOST]:
                family += map(int, _text(f"/proc/{member}/task/{thread}/children").split())
    return found


def _text(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4_096)
    finally:
        os.close(descriptor)
