"""This product: a tool's ``timeout_ms``, in a run of a daemon of its own that the script's model steers.

``approval="never"``, or it would ask a person before it paid. Everything else is as it comes. A cell that is told to
end ends its daemon first.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import _command
from bench._daemon import REPOSITORY
from bench.compare.script import GOAL, Script
from deadlined import Client
from deadlined._private_daemon import open_private_daemon
from deadlined.runs import Run

_CONFIG = f"""[tool.pay_thread]
kind = "python"
module = "bench.compare.tools"
path = "{REPOSITORY}"
"""


def run(_setup: str, kind: str, script: Script, over: Callable[[str], None]) -> None:
    """See the package."""
    _command.end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="deadlined-compare-") as name:
        directory = Path(name)
        (directory / "deadlined.toml").write_text(_CONFIG)
        with (
            open_private_daemon(directory, {}, ["--config", str(directory / "deadlined.toml")]) as daemon,
            Client(daemon.socket) as client,
            client.run(goal=GOAL) as run,
        ):
            over(_steer(run, f"pay_{kind}", script))
            sys.stdin.read()


def _steer(run: Run, tool: str, script: Script) -> str:
    heard = ""
    while (said := script.decide(heard)) is None:
        run.step()
        result = run.call(tool)
        if result.status == "waiting_for_approval":
            stop = run.wait()
            return f"{stop.status}: {stop.reason}"
        heard = str(result.content) if result.status == "ok" else f"{result.status} {result.reason}"
    run.finish(said)
    return said
