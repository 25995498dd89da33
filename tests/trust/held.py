"""What a daemon holds, seen from outside: by /proc and directory listings. Asks it nothing."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from deadlined._outside import tree
from tests.trust.daemons import SuiteDaemon

CALM_WITHIN_S = 30.0
"""Idle workers end after one second, idle threads after ten, groups when the kernel lets go of them."""
CALM_FOR_S = 2.0
"""Longer than an idle worker lives in the suites that look here."""


class Held(NamedTuple):
    """What a daemon holds. Smaller is better."""

    descriptors: int
    threads: int
    processes: int
    cgroups: int
    directories: int
    outputs: int


def calm(daemon: SuiteDaemon, wanted: Held | None = None) -> Held:
    """What is held once nothing moves any more: as little as ``wanted``, or the same for long enough."""
    until = time.monotonic() + CALM_WITHIN_S
    last, since = held(daemon), time.monotonic()
    while time.monotonic() < until:
        time.sleep(0.2)
        now = held(daemon)
        if wanted is not None and all(has <= was for has, was in zip(now, wanted, strict=True)):
            return now
        if now != last:
            last, since = now, time.monotonic()
        elif wanted is None and time.monotonic() - since > CALM_FOR_S:
            return last
    return last


def held(daemon: SuiteDaemon) -> Held:
    """What it holds now. (Its descriptors only root may count, or who has started it `weighed`.)"""
    proc = Path(f"/proc/{daemon.pid}")
    return Held(
        len(os.listdir(proc / "fd")),
        len(os.listdir(proc / "task")),
        len(tree(daemon.pid)),
        _groups(daemon.pid),
        sum(len(os.listdir(work)) for work in daemon.state.glob("*/work")),
        sum(len(os.listdir(outputs)) for outputs in daemon.state.glob("*/outputs")),
    )


def _groups(pid: int) -> int:
    """Groups of the daemon's workers in every hierarchy, by the names that it gives them."""
    own = re.compile(rf"/[^/]*{pid}[^/]*/w\d+$")
    return sum(1 for path, *_ in os.walk("/sys/fs/cgroup") if own.search(path))  # passes over what goes meanwhile


def resident(daemon: SuiteDaemon, what: str = "RssAnon") -> int:
    """Bytes of memory that the kernel has given its process (proc(5), status)."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) << 10
