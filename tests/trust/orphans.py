"""Who is left when a daemon is gone, by the kernel's own book: orphans become children of the nearest subreaper, and
that is this process. Asks no daemon, no mark, no name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from deadlined._outside import Process, tree

_PR_SET_CHILD_SUBREAPER = 36


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


def has_memory(process: Process) -> bool:
    """Whether it can still run code: one that exits has given it back before it is a zombie (proc(5), statm)."""
    try:
        return not Path(f"/proc/{process.pid}/statm").read_text().startswith("0 ")
    except OSError:
        return False
