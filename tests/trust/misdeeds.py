"""A tool that does what it is asked for and then goes wrong: it is done, and what is heard of it is something else.

It holds its call's pipe (`pipes`). What goes wrong is what `toolworkers.chaos` has. Imported by a zygote.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from deadlined import Context, tool
from tests.trust.tools import write
from toolworkers import chaos

MISDEEDS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "raises": lambda: chaos.raise_error("ValueError"),
    "is transient": lambda: chaos.raise_error("tool"),
    "times out by itself": lambda: chaos.raise_error("TimeoutError"),
    "wants to exit": lambda: chaos.raise_error("SystemExit"),
    "exits": chaos.exit_at_once,
    "segfaults": chaos.segfault,
    "aborts": chaos.abort,
    "spins": chaos.spin,
    "ignores SIGTERM": chaos.ignore_sigterm,
    "floods": lambda: chaos.flood(1),
    "forks": lambda: chaos.fork(2),
    "leaves its session": lambda: chaos.setsid(2),
    "daemonises": chaos.daemon,
    "forks and hangs": lambda: chaos.fork(2, "hang"),
    "forks and exits": lambda: chaos.fork(2, "exit"),
    "leaves threads": chaos.threads,
    "leaves dirt": chaos.dirty,
    "closes all": chaos.close_descriptors,
    "says garbage": chaos.garbage,
    "says half": chaos.half_frame,
    "says half and exits": lambda: chaos.half_frame("exit"),
}


@tool(name="trust_misdeed", approval="never")
def misdeed(file: str, name: str, pipe: str, what: str, ctx: Context, lines: int = 1) -> Any:
    """One side effect, some output, and then ``what``. A deep value for ``"unsayable"``."""
    held = os.open(pipe, os.O_RDWR)
    try:
        write(file, name, ctx)
        os.write(1, f"{name}\n".encode() * lines)
        if what == "unsayable":
            return chaos.content("deep")
        MISDEEDS[what]()
        return name
    finally:
        if what != "closes all":
            os.close(held)
