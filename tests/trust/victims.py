"""kill -9 of one of what a daemon has started: a killer, a zygote, a worker or a program of a call, drawn at random."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

from deadlined._outside import Process, alive, describe, tree
from protocol._outcomes import CallResult, Delivery

SHARES = {"worker": 88, "killer": 8, "zygote": 4}


def kill_a_helper(daemon: int, rng: random.Random) -> str:
    """What sort of helper of the process ``daemon`` was killed; empty: there was none of the sort drawn."""
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    helpers = _children(daemon)
    victims = [process for process in sorted(tree(daemon)) if process.pid != daemon]
    victims = [process for process in victims if _kind(process, helpers) == kind]
    return kind if victims and _kill_one(rng.choice(victims)) else ""


def killed_tool(result: CallResult) -> bool:
    """A program of a call that was killed itself exits by a signal, and its call fails for sure: that is so."""
    return result.delivery is Delivery.FAILED_DEFINITE and result.exit is not None


def _children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def _kind(process: Process, helpers: set[int]) -> str:
    """The daemon's own children are named by their command line; below them are workers and the programs of calls."""
    if process.pid not in helpers:
        return "worker"
    return "killer" if "toolworkers killer" in describe(process) else "zygote"


def _kill_one(process: Process) -> bool:
    """By a pidfd: a number that was used again meanwhile belongs to somebody else."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(process.pid)
        try:
            if alive({process}):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False
