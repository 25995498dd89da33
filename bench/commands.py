"""Commands through the daemon: the price of the smallest one, and the speed of a large output.

The output is 100 MiB, so that the disk holds at most two of them; each raw file is removed when its call is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable

from bench._daemon import open_daemon
from bench._plan import Plan
from bench._report import Count, Row, Section
from bench._wire import BareClient

_MIB = 100
_LIMITS = {"output_bytes": 2 * _MIB << 20, "file_bytes": 2 * _MIB << 20}
_DEADLINE_MS = 30_000


def run(plan: Plan) -> Section:
    """See the module."""
    true = shutil.which("true") or "/bin/true"
    flood = ["head", "-c", str(_MIB << 20), "/dev/zero"]
    small: dict[str, list[list[float]]] = {"daemon": [], "spawn": [], "run": []}
    large: dict[str, list[list[float]]] = {"daemon": [], "run": []}
    missing = 0
    ways: dict[str, Callable[[], tuple[float, int]]]
    with open_daemon(_LIMITS) as daemon, BareClient(daemon.socket) as client:
        ways = {
            "daemon": lambda: _through_daemon(client, [true]),
            "spawn": lambda: _spawned(true),
            "run": lambda: _captured([true]),
        }
        for _ in range(plan.of(5, 2)):
            for name, way in plan.shuffled(ways.items()):
                way()
                small[name].append([way()[0] for _ in range(plan.of(80, 25))])
            for _ in range(plan.of(2, 1)):
                for name, samples in plan.shuffled(large.items()):
                    ms, size = _through_daemon(client, flood) if name == "daemon" else _captured(flood)
                    samples.append([_MIB * 1e3 / ms])
                    missing += size != _MIB << 20
    return Section(
        "commands",
        [
            Row(f"{true} through the daemon", "ms", small["daemon"], small["spawn"]),
            Row("subprocess.run, output captured", "ms", small["run"], small["spawn"]),
            Row("floor: posix_spawn and waitpid", "ms", small["spawn"]),
            Row(f"{_MIB} MiB of output through the daemon", "MiB/s", large["daemon"], large["run"]),
            Row("floor: subprocess.run, output in memory", "MiB/s", large["run"]),
            Count("outputs that were not whole", missing, 2 * len(large["run"])),
        ],
    )


def _through_daemon(client: BareClient, words: list[str]) -> tuple[float, int]:
    """(milliseconds, bytes of output)."""
    arguments = json.dumps({"argv": words})
    began = time.monotonic_ns()
    result = client.call("shell", arguments, deadline_ms=_DEADLINE_MS)
    ms = (time.monotonic_ns() - began) / 1e6
    if result.status != "ok":
        raise RuntimeError(result.summary)
    if result.output.path is not None:
        os.unlink(result.output.path)
    return ms, result.output.bytes


def _captured(words: list[str]) -> tuple[float, int]:
    began = time.monotonic_ns()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return (time.monotonic_ns() - began) / 1e6, len(done.stdout)


def _spawned(program: str) -> tuple[float, int]:
    began = time.monotonic_ns()
    pid = os.posix_spawn(program, [program], os.environ)
    os.waitpid(pid, 0)
    return (time.monotonic_ns() - began) / 1e6, 0
