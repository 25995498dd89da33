"""Who is related to a process, as far as /proc can tell: by descent, by session, by process group. For level ``group``.

It is a search and no mechanism: who has left the tree, the session and the group (a daemon does just that) is not
found. Nothing in here signals anybody.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it: `exec` comes through here
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_STATE, _PARENT, _GROUP, _SESSION, _STARTED = 0, 1, 2, 3, 19
"""Fields of /proc/PID/stat behind the name (proc(5))."""


class Process:
    """One live process; ``started`` in ticks since the boot, which no second process of one number shares."""

    __slots__ = ("group", "parent", "pid", "session", "started")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.parent, self.group, self.session = (int(fields[at]) for at in (_PARENT, _GROUP, _SESSION))
        self.started = int(fields[_STARTED])


def kindred(roots: Collection[int], sessions: set[int] | None) -> list[Process]:
    """The live ones among ``roots``, all that descend from them, and all in their sessions and groups or in those of
    ``sessions``, which is filled with what was found for the next search. None: by descent alone."""
    related: Collection[int] = () if sessions is None else sessions
    everybody = list(_everybody())
    found: dict[int, Process] = {}
    while True:
        family = {*roots, *found}
        more = [
            one
            for one in everybody
            if one.pid not in found
            and (one.pid in roots or one.parent in family or one.session in related or one.group in related)
        ]
        if not more:
            return list(found.values())
        found.update((one.pid, one) for one in more)
        if sessions is not None:
            sessions.update(number for one in more for number in (one.session, one.group))


def open_same(process: Process) -> int | None:
    """A pidfd of it; None when it has ended, even if its number is another's by now."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return None
    now = _look(process.pid)  # after the open: what has the same start now is what the descriptor names
    if now is not None and now.started == process.started:
        return pidfd
    os.close(pidfd)
    return None


def _everybody() -> Iterable[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _look(int(name))) is not None:
            yield process


def _look(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[_STATE] in (b"Z", b"X") else Process(pid, fields)
    except (OSError, ValueError, IndexError):
        return None
