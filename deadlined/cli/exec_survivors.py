"""Who is left of a call whose end the kernel has not confirmed: named for a person, never signalled by number."""

from __future__ import annotations

import os


def survivors(first_process: int, known: list[int] | None = None) -> list[str]:
    """One text for each process of the namespace that this process made for its children (or of those ``known``, where
    it made none): pid, command, state, and where it waits in the kernel. Without the first process, which is ours."""
    if known is not None:
        return [_describe(str(pid)) for pid in known]
    namespace = os.stat("/proc/self/ns/pid_for_children").st_ino
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != first_process]
    return [_describe(pid) for pid in pids if _lives_in(pid, namespace)]


def _lives_in(pid: str, namespace: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino == namespace
    except OSError:
        return False  # ended meanwhile, or somebody else's


def _describe(pid: str) -> str:
    name, _, rest = _read(f"/proc/{pid}/stat").rpartition(")")
    where = _read(f"/proc/{pid}/wchan").strip("0") or "?"
    return f"pid {pid} ({name.partition('(')[2]}) state {rest[1:2] or '?'} in {where}"


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
