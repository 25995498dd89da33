"""What is known of the machine that the figures come from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

_PACKAGES = ("trio", "msgspec")


def facts() -> dict[str, Any]:
    """Plain values for the head of a report and for its JSON."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "uid": os.geteuid(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def load() -> float:
    """Runnable and waiting tasks, averaged over the last minute: what else runs makes every tail longer."""
    return round(os.getloadavg()[0], 2)


def cpu_time_ns(pid: int) -> int:
    """What the first thread of a process has spent on a processor (sched-stats.rst)."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as line:
        return int(line.read().split()[0])


def _cpu() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
