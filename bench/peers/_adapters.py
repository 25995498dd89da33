"""One class a peer: its worker is warm when it is entered, and each bound is the documented one.

``noop(limit_s)`` returns when the answer is there; ``command`` runs a program to its end; ``hang`` returns when the
caller is told that ``limit_s`` is over; ``tidy`` is what the peer's manual gives to end the work then. What a peer
cannot do it does not have. Every pool has one worker: what hangs in it for good shows.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import importlib.metadata
import multiprocessing
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_process

from bench._daemon import child_environment, open_daemon
from bench.peers import _hang
from deadlined import Client

_COMMAND_S = 10.0


class Peer:
    """What all have. ``package``: the distribution it is of; empty: it is of the standard library or the system."""

    package = ""
    bound = ""
    """How `hang` is bounded, as a user writes it."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tidy(self) -> None:
        """See the module: nothing, for most."""

    @classmethod
    def version(cls) -> str | None:
        """As it is installed; None: it is not."""
        if not cls.package:
            return platform.python_version()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(cls.package)
        return None


class Deadlined(Peer):
    """This product, by its Python client."""

    package, bound = "deadlined", "client.call(…, deadline_ms=)"

    def __enter__(self) -> Deadlined:
        daemon = self._stack.enter_context(open_daemon())
        self._client = self._stack.enter_context(Client(daemon.socket))
        self.noop(_COMMAND_S)
        return self

    def noop(self, limit_s: float) -> None:
        """See the module."""
        self._call("bench_noop", {}, limit_s)

    def command(self, words: Sequence[str]) -> None:
        """See the module."""
        self._call("shell", {"argv": list(words)}, _COMMAND_S)

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        result = self._client.call(f"bench_{kind}", {"report": report}, deadline_ms=round(limit_s * 1e3))
        if result.status != "killed":
            raise RuntimeError(result.summary)

    def _call(self, tool: str, arguments: dict[str, Any], limit_s: float) -> None:
        result = self._client.call(tool, arguments, deadline_ms=round(limit_s * 1e3))
        if result.status != "ok":
            raise RuntimeError(result.summary)


class DeadlinedExec(Peer):
    """This product without a daemon."""

    package, bound = "deadlined", "deadlined exec --deadline"

    def command(self, words: Sequence[str]) -> None:
        """See the module."""
        _run([*_EXEC, f"{_COMMAND_S:g}s", "--", *words])

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        _run_into_limit([*_EXEC, f"{limit_s:g}s", "--", *_hang.words(kind, report)], exits=124)


class Futures(Peer):
    """The standard library's pool."""

    bound = "future.result(timeout=)"

    def __enter__(self) -> Futures:
        self._pool = self._new()
        self.noop(_COMMAND_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: a pool waits for its workers, and some of them hang."""

    def _new(self) -> Any:
        return concurrent.futures.ProcessPoolExecutor(max_workers=1)

    def noop(self, limit_s: float) -> None:
        """See the module."""
        self._pool.submit(_hang.noop).result(limit_s)

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self._pool.submit(_hang.hang, kind, report).result(limit_s)


class Loky(Futures):
    """A pool that can kill its workers."""

    package, bound = "loky", "future.result(timeout=), executor.shutdown(kill_workers=True)"

    def _new(self) -> Any:
        return importlib.import_module("loky").get_reusable_executor(max_workers=1)

    def tidy(self) -> None:
        """See the module."""
        self._pool.shutdown(wait=True, kill_workers=True)
        self._pool = self._new()


class Pebble(Futures):
    """A pool that kills the worker of a task that is too slow."""

    package, bound = "pebble", "pool.schedule(…, timeout=)"

    def _new(self) -> Any:
        return importlib.import_module("pebble").ProcessPool(max_workers=1)

    def noop(self, limit_s: float) -> None:
        """See the module."""
        self._pool.schedule(_hang.noop, timeout=limit_s).result()

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        with contextlib.suppress(TimeoutError, concurrent.futures.TimeoutError):
            self._pool.schedule(_hang.hang, args=(kind, report), timeout=limit_s).result()


class Multiprocessing(Futures):
    """The older pool."""

    bound = "result.get(timeout=), pool.terminate()"

    def _new(self) -> Any:
        return multiprocessing.Pool(1)

    def noop(self, limit_s: float) -> None:
        """See the module."""
        self._pool.apply_async(_hang.noop).get(limit_s)

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        with contextlib.suppress(multiprocessing.TimeoutError):
            self._pool.apply_async(_hang.hang, (kind, report)).get(limit_s)

    def tidy(self) -> None:
        """See the module."""
        self._pool.terminate()
        self._pool = self._new()


class Anyio(Peer):
    """Worker processes and programs of an event loop, under its cancellation."""

    package, bound = "anyio", "fail_after: to_process.run_sync(…, cancellable=True)"

    def __enter__(self) -> Anyio:
        portals = importlib.import_module("anyio.from_thread")
        self._portal = self._stack.enter_context(portals.start_blocking_portal())
        self.noop(_COMMAND_S)
        return self

    def noop(self, limit_s: float) -> None:
        """See the module."""
        self._portal.call(self._bounded, limit_s, _hang.noop)

    def command(self, words: Sequence[str]) -> None:
        """See the module."""
        self._portal.call(self._run, words)

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        with contextlib.suppress(TimeoutError):
            self._portal.call(self._bounded, limit_s, _hang.hang, kind, report)

    async def _bounded(self, limit_s: float, *work: Any) -> None:
        with anyio.fail_after(limit_s):
            await anyio.to_process.run_sync(*work, cancellable=True)

    async def _run(self, words: Sequence[str]) -> None:
        with anyio.fail_after(_COMMAND_S):
            await anyio.run_process(words)


class Subprocess(Peer):
    """A process for each call."""

    bound = "subprocess.run(timeout=)"

    def command(self, words: Sequence[str]) -> None:
        """See the module."""
        subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_COMMAND_S)

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            nowhere = subprocess.DEVNULL
            words = _hang.words(kind, report)
            subprocess.run(words, check=False, timeout=limit_s, stdin=nowhere, stdout=nowhere, stderr=nowhere)


class Timeout(Peer):
    """The program of that name."""

    bound = "timeout -s KILL"

    def command(self, words: Sequence[str]) -> None:
        """See the module."""
        _run(["timeout", "-s", "KILL", f"{_COMMAND_S:g}", *words])

    def hang(self, kind: str, report: str, limit_s: float) -> None:
        """See the module."""
        _run_into_limit(["timeout", "-s", "KILL", f"{limit_s:g}", *_hang.words(kind, report)], exits=-9)

    @classmethod
    def version(cls) -> str | None:
        """As it says itself."""
        if shutil.which("timeout") is None:
            return None
        said = subprocess.run(["timeout", "--version"], capture_output=True, text=True, check=False).stdout
        return said.partition("\n")[0].rpartition(" ")[2] or "of unknown version"


_EXEC = [sys.executable, "-m", "deadlined", "exec", "--deadline"]
PEERS: dict[str, type[Peer]] = {
    "deadlined": Deadlined,
    "deadlined exec": DeadlinedExec,
    "pebble": Pebble,
    "loky": Loky,
    "concurrent.futures": Futures,
    "multiprocessing": Multiprocessing,
    "anyio": Anyio,
    "subprocess": Subprocess,
    "timeout": Timeout,
}


def can(peer: str, what: str) -> bool:
    """Whether it has that method, and is installed."""
    return hasattr(PEERS[peer], what) and PEERS[peer].version() is not None


def _run(words: Sequence[str]) -> None:
    """To its end, output captured."""
    subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=child_environment())


def _run_into_limit(words: Sequence[str], exits: int) -> None:
    """Without pipes: whoever survives holds them, and would hold the caller."""
    nowhere = subprocess.DEVNULL
    done = subprocess.run(words, check=False, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=child_environment())
    if done.returncode != exits:
        raise RuntimeError(f"{words[0]} exits {done.returncode} and not {exits}")
