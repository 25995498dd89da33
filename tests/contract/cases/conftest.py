"""What the tests of public bug reports share: calls that are watched from outside.

A module that needs tools or limits of its own says so in ``CONFIG`` (see `module_daemon`). Who belongs to a call is
read from /proc, below the call's worker, while it runs: no word of the daemon's is believed, and no program can leave
that tree.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client, _outside
from deadlined._private_daemon import PrivateDaemon, open_private_daemon
from deadlined.client import CallHandle
from protocol import CallResult
from tests.contract.conftest import MARK, PLAIN_UID, TestedDaemon, trusting

PATIENCE_S = 30
"""Until when something must have happened that takes milliseconds: a bound for a broken product, no measure."""
FOREVER = "1111"
"""Seconds that a sleeper of these tests would sleep: longer than any test."""
ROUTES = ("deadline", "cancel", "disconnect")
"""The ways in which somebody else ends a call."""


def wait_until(true: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
    """Poll until ``true()``; fails with ``what`` after ``patience_s``."""
    until = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.005)


class Watched:
    """A call that runs, and every process below its worker (the worker included) as seen so far."""

    def __init__(self, client: Client, handle: CallHandle) -> None:
        self._client, self.handle = client, handle
        self.processes: set[_outside.Process] = set()

    def grow(self, count: int) -> Watched:
        """Wait until ``count`` processes live below the worker."""
        wait_until(lambda: len(self.look()) > count, f"less than {count} processes were started")
        return self

    def look(self) -> set[_outside.Process]:
        """Who lives now; added to ``processes``."""
        rows = [row for row in self._client.processes() if row.call == self.handle.call and row.pid]
        now = {process for row in rows if row.pid for process in _outside.tree(row.pid)}
        self.processes |= now
        return now

    def pid_of(self, word: str) -> int:
        """The one process with ``word`` in its command line, which it may have yet to become."""
        wait_until(lambda: self._named(word), f"nothing is {word}")
        (found,) = self._named(word)
        return found.pid

    def _named(self, word: str) -> list[_outside.Process]:
        return [process for process in self.look() if word in _outside.describe(process)]

    def check_gone(self, patience_s: float = 0.0) -> None:
        """None of them lives: at once, or (``patience_s``) within so long."""
        until = time.monotonic() + patience_s
        while left := _outside.alive(self.processes):
            assert time.monotonic() < until, [_outside.describe(process) for process in left]
            time.sleep(0.005)


class Calls:
    """Calls of one client; what they start carries the test's mark where a program lets it."""

    def __init__(self, daemon: TestedDaemon, client: Client, mark: str, nothing_left: Callable[..., None]) -> None:
        self.daemon, self.client, self.mark = daemon, client, mark
        self._nothing_left = nothing_left

    def arguments(self, *argv: str, **more: Any) -> dict[str, Any]:
        """For the tool ``shell``."""
        return {"argv": list(argv), "env": {MARK: self.mark}, **more}

    def run(self, *argv: str, deadline_ms: int = 20_000, stdin: str | None = None, **options: Any) -> CallResult:
        """Run a command to its end; nothing that carries the mark lives when its answer is there."""
        more = {} if stdin is None else {"stdin": stdin}
        return self.tool("shell", self.arguments(*argv, **more), deadline_ms=deadline_ms, **options)

    def tool(self, name: str, arguments: dict[str, Any], deadline_ms: int = 20_000, **options: Any) -> CallResult:
        """Run any tool to its end; nothing that carries the mark lives when its answer is there."""
        handle = self.client.submit(name, arguments, deadline_ms=deadline_ms, **options)
        result = handle.wait(PATIENCE_S)
        self._nothing_left(self.mark)
        return result

    def begin(
        self, tool: str, arguments: dict[str, Any], count: int = 1, deadline_ms: int = 60_000, **options: Any
    ) -> Watched:
        """Start a call and wait until ``count`` processes live below its worker."""
        return Watched(self.client, self.client.submit(tool, arguments, deadline_ms=deadline_ms, **options)).grow(count)

    def end(self, route: str, tool: str, arguments: dict[str, Any], count: int, **options: Any) -> CallResult | None:
        """Start a call, have it ended by ``route``, prove that all it started is gone; its result, where one is told.

        By ``deadline`` there may be no time to see it start on a busy machine, so that is not asked: what starts is
        proven by the other routes.
        """
        if route == "deadline":
            return self.tool(tool, arguments, deadline_ms=400, **options)
        if route == "disconnect":
            with ExitStack() as stack:
                other = Calls(
                    self.daemon, stack.enter_context(Client(self.daemon.socket)), self.mark, self._nothing_left
                )
                watched = other.begin(tool, arguments, count, **options)
            watched.check_gone(PATIENCE_S)
            self._nothing_left(self.mark, PATIENCE_S)
            return None
        watched = self.begin(tool, arguments, count, **options)
        watched.handle.cancel()
        result = watched.handle.wait(PATIENCE_S)
        watched.check_gone()
        self._nothing_left(self.mark)
        return result


@pytest.fixture
def calls(module_daemon: TestedDaemon, client: Client, mark: str, nothing_left: Callable[..., None]) -> Iterator[Calls]:
    """Calls at the module's daemon, which must serve the next one as if nothing had been."""
    yield Calls(module_daemon, client, mark, nothing_left)
    assert module_daemon.process.poll() is None, "the daemon has ended"
    assert client.call("shell", {"argv": ["echo", "still here"]}, deadline_ms=30_000).output.view == "still here\n"


def check_ended(route: str, result: CallResult | None) -> None:
    """The result says what ended the call, and that the kernel has confirmed it."""
    if result is None:
        assert route == "disconnect"
        return
    expected = {"deadline": ("killed", "time_budget"), "cancel": ("cancelled", "client")}[route]
    assert (result.status, result.reason) == expected, result.error
    assert result.kill is not None
    assert result.kill.confirmed
    assert result.kill.killed >= 1


@contextmanager
def open_daemon_as(python: list[str], config: str, *before: str) -> Iterator[PrivateDaemon]:
    """A daemon of the uid that the words of `python` give. ``before``: a script that runs it, and its arguments."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    try:
        (directory / "deadlined.toml").write_text(trusting(config))
        if python != [sys.executable]:
            os.chown(directory, PLAIN_UID, PLAIN_UID)
        arguments = ["--config", str(directory / "deadlined.toml")]
        with open_private_daemon(directory, {}, arguments, [*python, *before]) as daemon:
            yield daemon
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def daemon_memory(module_daemon: TestedDaemon) -> Callable[[], int]:
    """Bytes that the daemon has in memory now."""
    return lambda: int(open(f"/proc/{module_daemon.pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
