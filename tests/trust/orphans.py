"""Who is left when a daemon is gone, by the kernel's own book: orphans become children of the nearest subreaper, and
that is this process. Asks no daemon, no mark, no name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

from deadlined._outside import Process, describe, tree

_PR_SET_CHILD_SUBREAPER = 36
GONE_WITHIN_S = 1.0
TAKEN_APART_WITHIN_S = 10.0
LEAST_LOOKS = 50


def adopt_orphans() -> None:
    """From now on this process is the parent of whatever below it loses its own (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def below_us() -> list[Process]:
    """All that lives below this process; what has ended is reaped on the way. For a process that waits for no child of
    its own at this moment."""
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(int(pid), os.WNOHANG)
    return [process for process in tree(os.getpid()) if process.pid != os.getpid()]


def left_after(died: float) -> list[str]:
    """Who is alive `GONE_WITHIN_S` after a daemon has died at ``died`` (monotonic seconds): they are ended now. Returns
    as soon as nobody is."""
    looks = 0
    while left := below_us():
        looks += 1  # a machine on which we cannot look ourselves kills late, too
        if time.monotonic() - died > GONE_WITHIN_S and looks > LEAST_LOOKS and _are_alive(left, died):
            words = [describe(process) for process in left]
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            return words
        time.sleep(0.005)
    return []


def _are_alive(left: list[Process], died: float) -> bool:
    """What has no memory any more runs no code: the kernel takes it apart, when it comes to that."""
    return any(map(has_memory, left)) or time.monotonic() - died > TAKEN_APART_WITHIN_S


def has_memory(process: Process) -> bool:
    """Whether it can still run code: one that exits has given it back before it is a zombie (proc(5), statm)."""
    try:
        return not Path(f"/proc/{process.pid}/statm").read_text().startswith("0 ")
    except OSError:
        return False
