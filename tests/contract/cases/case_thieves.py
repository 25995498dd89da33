"""A command tool whose own code has every child of the worker collected before the worker can."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Literal

from deadlined import CommandPlan, command


def _collect_all() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.0005)


@command(approval="never")
def collected(code: int, by: Literal["kernel", "thread"], at_once: bool = False) -> CommandPlan:
    """Say something and exit with ``code``."""
    if by == "kernel":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    else:
        threading.Thread(target=_collect_all, daemon=True).start()
    pause = "" if at_once else "sleep 0.1; "
    return CommandPlan(["sh", "-c", f"echo ran; {pause}exit {code}"])
