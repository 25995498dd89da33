"""A daemon of one's own in a temporary directory, for as long as a block lasts.

Owns its process and its files. Its state, socket and runtime directories are its own, so that it meets no other daemon.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deadlined._errors import DeadlinedError
from protocol._places import STATE_VARIABLE

READY_WITHIN_S = 30.0
STOPPED_WITHIN_S = 15.0


class PrivateDaemon:
    """A running daemon: where it listens, and its process."""

    def __init__(self, socket: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.socket = socket
        self.process = process
        self.exit_code: int | None = None
        self.words = ""
        """The end of what it wrote to stderr, once it has stopped."""
        self._log = log

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self.process.pid

    def stop(self) -> int | None:
        """Have it drain and stop, then stop at once. Returns its exit code; None: it still runs."""
        self.process.send_signal(signal.SIGCONT)
        for _ in range(2):
            self.process.terminate()
            try:
                self.exit_code = self.process.wait(STOPPED_WITHIN_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self.words = self._log.read_text(errors="replace")[-2000:].strip()
        return self.exit_code


@contextmanager
def open_private_daemon(
    directory: Path,
    environment: dict[str, str],
    arguments: Sequence[str] = (),
    python: Sequence[str] = (sys.executable,),
) -> Iterator[PrivateDaemon]:
    """Start ``deadlined serve`` in ``directory``, wait until it is ready, stop it at the end of the block.

    ``python``: the words that become the interpreter (exec, no fork), for a daemon of another uid or under a limit.
    Raises DeadlinedError with the daemon's own words when it does not become ready.
    """
    socket, log = str(directory / "socket"), directory / "daemon.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*python, "-m", "deadlined", "serve", "--socket", socket, *arguments],
            env=_environment(directory, environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    daemon = PrivateDaemon(socket, process, log)
    try:
        ready = _wait_ready(daemon)
        if ready:
            yield daemon
    finally:
        daemon.stop()
        if process.stdout is not None:
            process.stdout.close()
    if not ready:
        raise DeadlinedError(f"the daemon did not become ready: {daemon.words or 'it said nothing'}")


def _environment(directory: Path, more: dict[str, str]) -> dict[str, str]:
    own = {f"XDG_{name}": str(directory / name.lower()) for name in ("STATE_HOME", "CACHE_HOME", "DATA_HOME")}
    kept = {name: value for name, value in os.environ.items() if name != "DEADLINED_SOCKET"}
    own |= {"XDG_RUNTIME_DIR": str(directory), STATE_VARIABLE: str(directory / "state")}
    return {**kept, **own, **more}


def _wait_ready(daemon: PrivateDaemon) -> bool:
    assert daemon.process.stdout is not None, "stdout was asked for as a pipe"
    until, said = time.monotonic() + READY_WITHIN_S, b""
    while b"\n" not in said:
        readable, _, _ = select.select([daemon.process.stdout], [], [], max(0.0, until - time.monotonic()))
        more = os.read(daemon.process.stdout.fileno(), 4096) if readable else b""
        if not more:
            return False
        said += more
    return True
