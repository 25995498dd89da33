"""Starts the floors, and ends them with their block. What they do is in `floors`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench._child import open_child
from bench._wire import BareClient

HAS_NAMESPACES = os.geteuid() == 0
"""Whether a floor can fork into pid namespaces; without, a family cannot be killed by one signal."""


class KillFloor:
    """Kills one worker at a time; times in nanoseconds."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def kill(self, kind: str, after_ms: float = 20.0) -> tuple[int, int, int]:
        """(deadline → signal, deadline → dead, signal → the next one ready)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {after_ms}\n".encode())
        self._process.stdin.flush()
        signalled, gone, ready = map(int, self._process.stdout.readline().split())
        return signalled, gone, ready


@contextmanager
def open_relay_floor(workers: int) -> Iterator[BareClient]:
    """A client of a blocking relay with so many workers."""
    with tempfile.TemporaryDirectory(prefix="deadlined-bench-") as directory:
        path = f"{directory}/floor"
        with _program("relay", path, str(workers)), BareClient(path) as client:
            yield client


@contextmanager
def open_kill_floor() -> Iterator[KillFloor]:
    """A process that does nothing but start workers and kill them."""
    with _program("kill") as process:
        yield KillFloor(process)


@contextmanager
def _program(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Closing its standard input, or our death, ends it, and its workers have its death as their signal."""
    with open_child(f"bench.floors.{name}", *arguments) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the floor {name} did not start")
        yield process
