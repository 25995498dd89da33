"""Processes as seen from outside: who is alive, by /proc alone. Asks no daemon and kills nobody.

A process belongs to a *mark* when its environment or its command line contains it. A tool could wipe both, so this is
the demo's witness for programs it chose itself, and no mechanism of containment.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Process(NamedTuple):
    """A process that cannot be confused with a later one of the same number."""

    pid: int
    started: int


def marked(mark: str) -> set[Process]:
    """Every live process that carries ``mark``, this one left out."""
    wanted = mark.encode()
    return {
        p for p in _all() if p.pid != os.getpid() and any(wanted in _read(p.pid, f) for f in ("cmdline", "environ"))
    }


def tree(root: int) -> set[Process]:
    """``root`` and all its live descendants."""
    parents = {process: _parent(process.pid) for process in _all()}
    found = {process for process in parents if process.pid == root}
    while more := {p for p, parent in parents.items() if parent in {f.pid for f in found}} - found:
        found |= more
    return found


def alive(processes: set[Process]) -> set[Process]:
    """Those of ``processes`` that still live."""
    return {process for process in processes if _started(process.pid) == process.started}


def describe(process: Process) -> str:
    """Its number and command line, for people."""
    return f"{process.pid} {_read(process.pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace').strip()}"


def _all() -> list[Process]:
    stamps = ((int(name), _started(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return [Process(pid, started) for pid, started in stamps if started is not None]


def _read(pid: int, name: str) -> bytes:
    """Empty for what is gone, or not ours to read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _stat(pid: int) -> list[bytes]:
    """Fields from the third on (proc(5)); the second, a name in parentheses, may contain anything."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _started(pid: int) -> int | None:
    """Clock ticks between boot and its start; None when it is gone or only waits to be reaped."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None
