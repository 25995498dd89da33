"""A module of tools that collects all children of whoever imports it, as event loops do."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

from deadlined import tool


def _collect(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


signal.signal(signal.SIGCHLD, _collect)


@tool(read_only=True, approval="never")
def nothing() -> None:
    """Do nothing."""
