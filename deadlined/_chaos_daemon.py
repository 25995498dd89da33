"""A private daemon to be mistreated: its worker or itself killed, stopped, started again; and who is left, by /proc.

Owns the daemon's directory, its lives, and the processes that were seen to be its. Kills by pidfd, and only what it has
found below its own daemon. (`testing` makes pytest fixtures of it.)
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deadlined import _outside
from deadlined._outside import Process
from deadlined._private_daemon import PrivateDaemon, open_private_daemon
from deadlined.client import CallHandle, Client
from protocol._places import STATE_VARIABLE

CHAOS = '[tool.chaos_noop]\nkind = "python"\nmodule = "toolworkers.chaos"\n'
"""Serves every tool of the module."""
_UNASKED = '\n[approval]\nundeclared = "never"\n'
"""A test has nobody to ask, unless it says otherwise."""
PATIENCE_S = 20.0
_LOOK_S = 0.01


class ChaosDaemon:
    """A daemon of a test's own, ready, in a directory of its own. Made by `open_chaos_daemon`."""

    def __init__(self, directory: Path, config: Path, lives: ExitStack) -> None:
        self.directory = directory
        """Holds its socket, configuration, state and log; removed at the end."""
        self._arguments = ["--config", str(config)]
        self._state = str(directory / "state")
        """In the TMPDIR of everything that a call has started, unless it has wiped its environment."""
        self._lives = lives
        self._seen: set[Process] = set()
        """Processes that died with a daemon that was killed, or should have."""
        self._live()

    def _live(self) -> None:
        opened = open_private_daemon(self.directory, {STATE_VARIABLE: self._state}, self._arguments)
        self._private: PrivateDaemon = self._lives.enter_context(opened)
        self._killed = False

    @property
    def socket(self) -> str:
        """Where it listens, in this life and in the next."""
        return self._private.socket

    @property
    def pid(self) -> int:
        """Its process."""
        return self._private.pid

    @property
    def log(self) -> str:
        """What it has written to stderr in this life: JSON lines."""
        return (self.directory / "daemon.log").read_text(errors="replace")

    def client(self) -> Client:
        """A new connection; use it as a context manager. It ends with the daemon's life."""
        return Client(self.socket, name="chaos test")

    # ------------------------------------------------------------ mistreating it

    def kill_worker(self, call: CallHandle | str) -> int:
        """SIGKILL the worker that runs ``call``, once it does; its pid. Raises LookupError when the call has settled.

        Nobody of deadlined does this: to the daemon it is a crash, and the call settles as ``crashed``.
        """
        wanted = call if isinstance(call, str) else call.call
        pid = self._worker_of(wanted)
        with _pidfd(pid) as worker:
            if pid not in {process.pid for process in _outside.tree(self.pid)}:  # else the number is another's by now
                raise LookupError(f"the worker of {wanted} has gone")
            signal.pidfd_send_signal(worker, signal.SIGKILL)
        return pid

    def _worker_of(self, call: str) -> int:
        until = time.monotonic() + PATIENCE_S
        with self.client() as client:
            while True:
                rows = {row.call: row for row in client.processes() if row.call is not None}
                if call not in rows or time.monotonic() > until:
                    raise LookupError(f"{call} runs on no worker")
                if (pid := rows[call].pid) is not None:
                    return pid
                time.sleep(_LOOK_S)

    @contextmanager
    def stop_daemon(self) -> Iterator[None]:
        """SIGSTOP the daemon, and it alone, until the block ends (SIGCONT). Deadlines do not wait for it."""
        self._private.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._private.process.send_signal(signal.SIGCONT)

    def kill_daemon(self) -> None:
        """SIGKILL the daemon and wait until it is dead. Everything it had started must die with it."""
        self._seen |= _outside.tree(self.pid) - {self._myself()}
        self._private.process.kill()
        self._private.process.wait()
        self._killed = True

    def start_again(self) -> None:
        """A daemon in the same place, with what the one that was killed has left. New connections are needed."""
        if not self._killed:
            raise RuntimeError("the daemon lives; kill_daemon() first")
        self._live()

    def _myself(self) -> Process:
        return next(process for process in _outside.tree(self.pid) if process.pid == self.pid)

    # ------------------------------------------------------------ who is left

    def survivors(self) -> list[str]:
        """Live processes of calls, as ``pid command line``; of a call that still runs its worker too."""
        left = _outside.alive(self._seen) | _outside.marked(self._state)
        if not self._killed:
            left = {process for process in left if process.pid != self.pid} | self._of_calls()
        return sorted(_outside.describe(process) for process in left)

    def _of_calls(self) -> set[Process]:
        with self.client() as client:
            rows = [row for row in client.processes() if row.pid is not None]
        idle = {row.pid for row in rows if row.call is None}
        below = [process for row in rows for process in _outside.tree(row.pid or 0)]
        return {process for process in below if process.pid not in idle}

    def assert_no_survivors(self, within_s: float = 5.0) -> None:
        """Raises AssertionError that names them when processes of calls live on for so long. The daemon itself, its
        helpers and workers that wait for a call are none. The daemon must run, or have been killed by `kill_daemon`."""
        until = time.monotonic() + within_s
        while left := self.survivors():
            if time.monotonic() >= until:
                raise AssertionError(f"{len(left)} processes of calls are alive: " + "; ".join(left))
            time.sleep(_LOOK_S)

    def check_end(self) -> None:
        """After its last life: it stopped cleanly, unless it was killed, and nothing is left. Raises AssertionError."""
        if not self._killed and self._private.exit_code != 0:
            raise AssertionError(f"the daemon ended with {self._private.exit_code}: {self._private.words}")
        self._killed = True
        self.assert_no_survivors()


@contextmanager
def open_chaos_daemon(config: str = "") -> Iterator[ChaosDaemon]:
    """Start one with the tools of `toolworkers.chaos` and what the TOML text ``config`` adds. At the end it is told to
    stop, must exit 0 and leave no process; its directory is removed. Raises DeadlinedError when it does not start."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))  # short: a socket's path has 107 bytes
    file = directory / "deadlined.toml"
    file.write_text(CHAOS + config + ("" if "[approval]" in config else _UNASKED))
    try:
        with ExitStack() as lives:
            daemon = ChaosDaemon(directory, file, lives)
            yield daemon
        daemon.check_end()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
