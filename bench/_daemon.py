"""Private daemons for as long as a block lasts. Owns their processes, directories and configuration.

A session of its own keeps a Ctrl-C at the terminal from reaching a daemon before its figures are in; its parent-death
signal ends it when this process is killed in the middle.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench._oracle import Process, children, command_line

REPOSITORY = Path(__file__).resolve().parent.parent
_READY_WITHIN_S, _STOPPED_WITHIN_S = 30.0, 15.0
_PR_SET_PDEATHSIG = 1
_UNWANTED = ("DEADLINED_SOCKET", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
_prctl = ctypes.CDLL(None).prctl


class BenchDaemon:
    """A running daemon and its directory."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self.directory, self.process = directory, process
        self.socket = str(directory / "socket")

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self.process.pid

    def killer(self) -> Process | None:
        """Its killer, found from outside; None while there is none."""
        return next((child for child in children(self.pid) if "killer" in command_line(child.pid)), None)

    def signal(self, number: signal.Signals) -> None:
        """Do something to the daemon, and to it alone."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM twice, then SIGKILL (its workers go with it); returns when it is reaped."""
        self.signal(signal.SIGCONT)
        for _ in range(2):
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOPPED_WITHIN_S)
                return
        self.process.kill()
        self.process.wait()


@contextmanager
def open_daemon(limits: Mapping[str, int] | None = None, **settings: int) -> Iterator[BenchDaemon]:
    """Start a daemon with the bench's tools; it and its files are gone at the end.

    ``settings`` go into its ``[daemon]`` table, ``limits`` into ``[limits]``.

    Raises RuntimeError with the daemon's own words when it does not become ready.
    """
    directory = Path(tempfile.mkdtemp(prefix="deadlined-bench-"))
    try:
        config = directory / "deadlined.toml"
        config.write_text(_config(directory, limits or {}, settings))
        daemon = BenchDaemon(directory, _start(directory, config))
        try:
            _wait_ready(daemon)
            yield daemon
        finally:
            daemon.stop()
            assert daemon.process.stdout is not None
            daemon.process.stdout.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def child_environment() -> dict[str, str]:
    """Ours without what would slow a start (byte code that is never written) or aim it elsewhere."""
    return {name: value for name, value in os.environ.items() if name not in _UNWANTED}


def end_with_parent() -> None:
    """In a child between fork and exec: SIGTERM when the main thread of the bench is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _start(directory: Path, config: Path) -> subprocess.Popen[bytes]:
    words = ["-m", "deadlined", "serve", "--config", str(config), "--socket", str(directory / "socket")]
    own = {f"XDG_{name}": str(directory) for name in ("STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR")}
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=REPOSITORY,
            env={**child_environment(), **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  # the bench has one thread
        )


def _wait_ready(daemon: BenchDaemon) -> None:
    assert daemon.process.stdout is not None
    until, said = time.monotonic() + _READY_WITHIN_S, b""
    while b"\n" not in said:
        readable, _, _ = select.select([daemon.process.stdout], [], [], max(0.0, until - time.monotonic()))
        more = os.read(daemon.process.stdout.fileno(), 4096) if readable else b""
        if not more:
            words = (daemon.directory / "log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the daemon did not become ready: {words or 'it said nothing'}")
        said += more


def _config(directory: Path, limits: Mapping[str, int], settings: Mapping[str, int]) -> str:
    tables: dict[str, dict[str, object]] = {
        "daemon": {"state_dir": str(directory / "state"), **settings},
        "limits": dict(limits),
        # What is measured hangs on purpose, time and again: nothing of it may be kept from running.
        "quarantine": dict.fromkeys(("poison_losses", "warn_keys", "serial_keys", "breaker_keys"), "none"),
        "profile.bench.limits": {"wall_ms": "6h", "steps": "none"},
        "tool.bench_noop": {"kind": "python", "module": "bench.tools", "path": str(REPOSITORY)},
    }
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
