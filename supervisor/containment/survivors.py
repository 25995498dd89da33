"""Who is left of a worker that was killed and is not dead, named for people and for the journal. Never signalled by
these numbers, and nothing is decided by them.

Run it in a thread, with patience for it: reading a command line takes the process's memory map lock (proc(5)), and a
process that hangs in the kernel may hold that. What can be read without it is therefore read of all of them first.
"""

from __future__ import annotations

import contextlib
import os

from protocol._outcomes import Survivor

MOST = 16
"""So many are named."""
_WALKED = 256
_WORDS = 160
_READ = 4_096
_STATE, _FLAGS = 0, 6
"""Fields of /proc/PID/stat behind the name (proc(5))."""
_PF_EXITING = 0x4
_DEAD = ("Z", "X")


def list_survivors(first: int, found: list[Survivor]) -> None:
    """Append to ``found`` the process ``first`` and all below it that still run; complete their commands afterwards.

    Whoever does not want to wait for the commands may take what is there: a name in brackets stands for them.
    ``first`` itself is left out when it only waits for the others (the first process of a namespace does, exiting).
    """
    family, walked = [first], 0
    while family and walked < _WALKED and len(found) < MOST:
        member, walked = family.pop(0), walked + 1
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended while we looked
            family += _children(member)
            row, flags = _seen(member)
            if row.state not in _DEAD and not (member == first and flags & _PF_EXITING):
                found.append(row)
    for row in list(found):
        row.command = _command(row.pid) or row.command


def _children(pid: int) -> list[int]:
    children: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task")[:_WALKED]:
        children += map(int, _bytes(f"/proc/{pid}/task/{thread}/children").split())
    return children


def _seen(pid: int) -> tuple[Survivor, int]:
    name, _, rest = _bytes(f"/proc/{pid}/stat").partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    row = Survivor(pid, _uid(pid), f"[{printable(name)}]", fields[_STATE].decode("ascii"), _waits_in(pid))
    return row, int(fields[_FLAGS])


def _uid(pid: int) -> int | None:
    """Of the process, not of its files in /proc: those are root's when it is not dumpable."""
    for line in _bytes(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None


def _waits_in(pid: int) -> str | None:
    try:
        return _bytes(f"/proc/{pid}/wchan").decode("ascii", "replace").strip("0\n") or None
    except OSError:
        return None  # not ours to see (ptrace(2), access checks)


def _command(pid: int) -> str:
    try:
        words = _bytes(f"/proc/{pid}/cmdline").strip(b"\0").split(b"\0")
    except OSError:
        return ""
    return printable(b" ".join(words))


def printable(said: bytes) -> str:
    """Any bytes as one line of text that both codecs can carry: what is no UTF-8, or no glyph, is escaped."""
    text = said.decode("utf-8", "backslashreplace")
    text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
    return text if len(text) <= _WORDS else text[:_WORDS] + "…"


def _bytes(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _READ)
    finally:
        os.close(descriptor)
