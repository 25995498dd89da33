"""Daemons for the suites: started in a directory that outlives them, stopped, killed, and started there again.

``rig`` starts one through `rigged`, which breaks it at a named point: the product has no switches.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
READY_WITHIN_S = 30.0
STOPPED_WITHIN_S = 15.0
_UNWANTED = ("DEADLINED_SOCKET", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
TOOLS = {"tool.trust": {"kind": "python", "module": "tests.trust.tools", "path": str(REPOSITORY)}}
UNASKED = {"approval": {"undeclared": "never"}}
"""Nobody is there to be asked."""

_MANY, _LONG_MS = 20_000, 60_000
PATIENT = {"first_delay_ms": 1, "delay_cap_ms": 2, "class_ends": _MANY, "pool_ends": _MANY, "class_window_ms": _LONG_MS}
TRUSTING = {"poison_losses": "none", "breaker_keys": "none", "serial_keys": "none", "warn_keys": "none"}
"""``[restart]`` and ``[quarantine]`` for suites that kill so many workers that pool and tools would be shut."""


class NotReady(Exception):  # noqa: N818  # said as the fact it is
    """The daemon did not come to life; the text has its own words."""


class SuiteDaemon:
    """One place for daemons, one after the other. Leave it as a context: what still runs then is killed."""

    def __init__(
        self, directory: Path, settings: Mapping[str, object] | None = None, **tables: Mapping[str, object]
    ) -> None:
        """``settings`` go into ``[daemon]``; ``tables`` are tables of their own."""
        self.directory = directory
        self.socket = str(directory / "socket")
        self.state = directory / "state"
        self.process: subprocess.Popen[bytes] | None = None
        self._config = directory / "deadlined.toml"
        self._config.write_text(
            _toml({"daemon": {"state_dir": str(self.state), **(settings or {})}, **UNASKED, **tables, **TOOLS})
        )

    def __enter__(self) -> SuiteDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        """The daemon's process."""
        assert self.process is not None
        return self.process.pid

    def start(self, rig: str = "") -> None:
        """Start a daemon here and wait until it is ready. Raises NotReady."""
        self.begin(rig)
        if not self.wait_ready():
            self.kill()
            raise NotReady(self.words() or "it said nothing")

    def begin(self, rig: str = "") -> None:
        """Start one and wait for nothing."""
        words = ["tests.trust.rigged", rig] if rig else ["deadlined"]
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words, "serve", "--config", str(self._config), "--socket", self.socket],
                cwd=REPOSITORY,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> bool:
        """Whether it says ``ready`` in time; False as soon as it has ended."""
        assert self.process is not None
        assert self.process.stdout is not None
        until, said = time.monotonic() + within_s, b""
        while b"\n" not in said:
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            more = os.read(self.process.stdout.fileno(), 4096) if readable else b""
            if not more:
                return False
            said += more
        return True

    def kill(self) -> int:
        """SIGKILL, also for one that has ended already; how it ended (negative: a signal)."""
        assert self.process is not None
        self.process.kill()
        return self.reap()

    def reap(self, within_s: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(within_s)
        self.process.stdout.close()
        self.process = None
        return code

    def stop(self) -> int:
        """SIGTERM, a second one, then SIGKILL; how it ended."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        for _ in range(2):
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.reap(STOPPED_WITHIN_S)
        return self.kill()

    def words(self) -> str:
        """The end of what it wrote to stderr."""
        return (self.directory / "log").read_text(errors="replace")[-2000:].strip()

    def _environment(self) -> dict[str, str]:
        own = {f"XDG_{name}": str(self.directory) for name in ("STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR")}
        return {**{name: value for name, value in os.environ.items() if name not in _UNWANTED}, **own}


def _toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    lines: list[str] = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
