"""The demo's scenes: what is played on which real programs, and how each must end.

Left to ``demo``: the private daemon, the judging of what came of a scene, the table.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deadlined import _outside
from deadlined._private_daemon import PrivateDaemon
from deadlined.client import Client
from protocol._events import EventKind
from protocol._outcomes import WENT_WELL, CallResult

MARK = "DEADLINED_DEMO"
"""The environment variable by which an outsider finds what a scene started."""
SHORT_MS = 700
STOPPED_MS = 1_500
LATE_S = 0.3
"""How long after its deadline a call is looked for while the daemon is stopped."""


class Unexpected(Exception):  # noqa: N818  # the demo's own word for a surprise that no result shows
    """A scene went as it must not."""


@dataclass(frozen=True)
class Stage:
    """Where a scene plays."""

    client: Client
    daemon: PrivateDaemon
    workspace: Path
    mark: str

    def command(self, *argv: str, deadline_ms: int = 10_000, max_output_bytes: int | None = None) -> CallResult:
        """Run ``argv``, marked so that an outsider can find all that comes of it."""
        arguments = {"argv": argv, "env": {MARK: self.mark}}
        return self.client.call(
            "shell", arguments, deadline_ms=deadline_ms, cwd=self.workspace, max_output_bytes=max_output_bytes
        )

    def script(self, text: str, deadline_ms: int = 10_000) -> CallResult:
        """Run ``text`` by ``sh``; the mark is also the script's name, which nothing it does can wipe."""
        return self.command("sh", "-c", text, self.mark, deadline_ms=deadline_ms)


@dataclass(frozen=True)
class Scene:
    """One row: what is played, the programs it needs, and how it must end."""

    what: str
    needs: tuple[str, ...]
    play: Callable[[Stage], CallResult]
    outcome: str
    killed_at_least: int = 0


def _git(stage: Stage) -> CallResult:
    who = "-c user.name=demo -c user.email=demo@example.invalid -c commit.gpgsign=false -c core.hooksPath=/dev/null"
    return stage.script(
        f"git init -q . && echo hello > README && git add README && git {who} commit -q -m First && git log --oneline"
    )


def _tar(stage: Stage) -> CallResult:
    return stage.script("echo hello > README; tar -cf - . | tar -tf - | grep README")


def _python(stage: Stage) -> CallResult:
    return stage.client.call("python", {"code": "import math\nmath.comb(52, 5)"}, deadline_ms=10_000)


def _failing(stage: Stage) -> CallResult:
    return stage.command("grep", "-r", "no such text here", "README")


def _hung(stage: Stage) -> CallResult:
    return stage.command("sleep", "1000", deadline_ms=SHORT_MS)


def _deaf(stage: Stage) -> CallResult:
    return stage.script("trap '' TERM INT HUP; while :; do sleep 1; done", deadline_ms=SHORT_MS)


def _daemonised(stage: Stage) -> CallResult:
    """A session of its own, a parent that is gone, no stream in common: all that a kill by group or by tree misses."""
    return stage.script(
        "(setsid sh -c '(sleep 1000 &) ; sleep 1000' </dev/null >/dev/null 2>&1 &) ; sleep 1000", deadline_ms=SHORT_MS
    )


def _flooding(stage: Stage) -> CallResult:
    return stage.command("yes", "all work and no play", max_output_bytes=1 << 20)


def _leaving(stage: Stage) -> CallResult:
    return stage.script("sleep 1000 & sleep 1000 & echo started")


def _stopped(stage: Stage) -> CallResult:
    """The daemon cannot act at the deadline; the killer can. What is alive is counted while the daemon is stopped."""
    arguments = {"argv": ["sleep", "1000"], "env": {MARK: stage.mark}}
    handle = stage.client.submit("shell", arguments, deadline_ms=STOPPED_MS)
    until = time.monotonic() + STOPPED_MS / 1000
    _wait_for_any(stage.mark, until)
    os.kill(stage.daemon.pid, signal.SIGSTOP)
    try:
        time.sleep(max(0.0, until - time.monotonic()) + LATE_S)
        alive = _outside.marked(stage.mark)
    finally:
        os.kill(stage.daemon.pid, signal.SIGCONT)
    result = handle.wait()
    if alive:
        raise Unexpected(f"{len(alive)} alive after the deadline while the daemon was stopped")
    return result


def _looping(stage: Stage) -> CallResult:
    """An agent that never learns: the same question until the daemon ends its run. The last answer it gets."""
    run = stage.client.open_run(goal="loop", profile="demo", deadline_ms=30_000, workspace=str(stage.workspace))
    while True:
        result = run.call("read_file", {"path": "README"})
        if result.status not in WENT_WELL:
            break
    stop = run.wait()
    if stop.status != "stuck":
        raise Unexpected(f"the run ended otherwise: {stop.text}")
    return result


def _undecided(stage: Stage) -> CallResult:
    """A model that never answers: the run ends at its deadline though no tool runs, and takes no call after it."""
    run = stage.client.open_run(goal="decide", deadline_ms=SHORT_MS)
    run.step()
    stop = run.wait()
    if (stop.reason, stop.phase) != ("time_budget", "decide"):
        raise Unexpected(f"the run ended otherwise: {stop.text}")
    return run.call("read_file", {"path": "README"})


def _hasty(stage: Stage) -> CallResult:
    """A scripted model that claims to be done before it is: the check sends it back. What it did then."""
    mend = {"argv": ["touch", "mended"], "env": {MARK: stage.mark}}
    turns = [_turn("finish", answer="done"), _turn("shell", **mend), _turn("finish", answer="done now")]
    script = stage.workspace / "hasty.jsonl"
    script.write_text("\n".join(turns), encoding="utf-8")
    run = stage.client.agent(
        "mend it", model=f"scripted:{script}", workspace=stage.workspace, checks=["test -e mended"], deadline_ms=30_000
    )
    stop = run.wait()
    refused = [event for event in run.events() if event.kind == EventKind.FINISH_REFUSED]
    if stop.status != "completed" or len(refused) != 1 or stop.last_action is None:
        raise Unexpected(f"the run ended otherwise: {stop.text}")
    return stage.client.handle(stop.last_action.call).wait()


def _turn(tool: str, **arguments: object) -> str:
    return json.dumps({"calls": [{"tool": tool, "arguments": arguments}]})


def _wait_for_any(mark: str, until: float) -> None:
    while not _outside.marked(mark) and time.monotonic() < until:
        time.sleep(0.02)


SCENES = (
    Scene("git: commit and log", ("git",), _git, "ok"),
    Scene("tar | tar | grep", ("tar", "grep"), _tar, "ok"),
    Scene("python: a value", (), _python, "ok"),
    Scene("grep that finds nothing", ("grep",), _failing, "error, exit 1"),
    Scene("hangs", ("sleep",), _hung, "killed (time_budget)", 1),
    Scene("ignores SIGTERM", ("sleep",), _deaf, "killed (time_budget)", 2),
    Scene("daemonises (setsid, double fork)", ("setsid", "sleep"), _daemonised, "killed (time_budget)", 3),
    Scene("floods its output", ("yes",), _flooding, "killed (output_limit)", 1),
    Scene("exits, leaves children behind", ("sleep",), _leaving, "ok", 2),
    Scene("deadline while the daemon is stopped", ("sleep",), _stopped, "killed (time_budget)", 1),
    Scene("an agent that asks the same for ever", ("git",), _looping, "duplicate_call (repeat_call)"),
    Scene("an agent that never decides", (), _undecided, "not_executed (time_budget)"),
    Scene("an agent that is done too early", ("touch",), _hasty, "ok"),
)
