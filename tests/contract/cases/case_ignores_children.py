"""A module of tools that has the kernel throw away the statuses of all children of whoever imports it."""

from __future__ import annotations

import signal

from deadlined import tool

signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@tool(read_only=True, approval="never")
def nothing() -> None:
    """Do nothing."""
