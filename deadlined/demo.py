"""``deadlined demo``: plays the scenes against a private daemon and shows each receipt as a row.

Every row is judged against what must come of its scene. What is left at the end is counted from outside (``_outside``),
never by asking the daemon. Left to ``_demo_scenes``: the scenes.
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from deadlined import _outside
from deadlined._demo_scenes import MARK, SCENES, Scene, Stage, Unexpected
from deadlined._errors import DeadlinedError
from deadlined._private_daemon import PrivateDaemon, open_private_daemon
from deadlined.client import Client
from protocol._outcomes import CallResult
from protocol._quantities import say_duration

SURPRISE = 1
GONE_WITHIN_S = 2.0
"""How long a process that was told to end may still be seen after the daemon is gone."""
_ROW = "{:<38} {:<28} {:>6} {:>15} {:>15} {:>5}"


@dataclass
class Row:
    """What came of a scene. ``left``: processes of it seen from outside once its answer was there."""

    what: str
    outcome: str
    killed: int | None = None
    signalled_after_ms: float | None = None
    confirmed_after_ms: float | None = None
    left: int = 0
    surprise: str | None = None


@dataclass
class Report:
    """All rows, and who was still alive when the daemon had stopped."""

    rows: list[Row] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)


def run(as_json: bool = False) -> int:
    """Play every scene; 0 when each ended as it must and nothing is left, else 1."""
    signal.signal(signal.SIGTERM, _leave)
    show: Callable[[str], None] = _silent if as_json else _say
    mark = f"demo-{secrets.token_hex(6)}"
    directory = Path(tempfile.mkdtemp(prefix="deadlined-demo-"))
    try:
        report = _perform(directory, mark, show)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    show("")
    for surprise in report.surprises:
        show(f"surprise: {surprise}")
    _say(json.dumps(_as_object(report)) if as_json else f"processes left: {len(report.left)}")
    return SURPRISE if report.surprises else 0


def _perform(directory: Path, mark: str, show: Callable[[str], None]) -> Report:
    report = Report()
    started: set[_outside.Process] = set()
    try:
        with open_private_daemon(directory, {MARK: mark}) as daemon:
            for row in _played(daemon, directory, mark, show):
                report.rows.append(row)
                show(_line(row))
                started |= _outside.tree(daemon.pid)
        if daemon.exit_code != 0:
            report.surprises.append(f"the daemon exited {daemon.exit_code}: {daemon.words}")
    except DeadlinedError as error:
        report.surprises.append(str(error))
    report.left = [_outside.describe(process) for process in _survivors(mark, started)]
    report.surprises += [f"{row.what}: {row.surprise}" for row in report.rows if row.surprise]
    report.surprises += [f"still alive: {words}" for words in report.left]
    return report


def _played(daemon: PrivateDaemon, directory: Path, mark: str, show: Callable[[str], None]) -> Iterator[Row]:
    workspace = directory / "workspace"
    workspace.mkdir()
    with Client(daemon.socket, name="demo") as client:
        show(f"daemon {daemon.pid}, containment {client.status().containment}\n")
        show(_ROW.format("what", "outcome", "killed", "signalled after", "confirmed after", "left"))
        for number, scene in enumerate(SCENES):
            yield _row(scene, Stage(client, daemon, workspace, f"{mark}-{number:02d}"))


def _row(scene: Scene, stage: Stage) -> Row:
    missing = [program for program in scene.needs if shutil.which(program) is None]
    if missing:
        return Row(scene.what, f"not played: no {', '.join(missing)} here")
    try:
        result = scene.play(stage)
    except Unexpected as error:
        return Row(scene.what, "surprise", surprise=str(error))
    row = _filled(scene, result)
    row.left = len(_outside.marked(stage.mark))
    row.surprise = _surprise(scene, result, row)
    return row


def _filled(scene: Scene, result: CallResult) -> Row:
    reason = f" ({result.reason})" if result.reason else ""
    code = f", exit {result.exit.code}" if result.exit and result.exit.code else ""
    row = Row(scene.what, f"{result.status}{reason}{code}", killed=result.left_processes or None)
    if result.kill is not None:
        row.killed = result.kill.killed
        row.signalled_after_ms, row.confirmed_after_ms = result.kill.signalled_after_ms, result.kill.confirmed_after_ms
    return row


def _surprise(scene: Scene, result: CallResult, row: Row) -> str | None:
    if row.outcome != scene.outcome:
        why = f": {result.error.message}" if result.error else ""
        return f"expected {scene.outcome}, got {row.outcome}{why}"
    if row.left:
        return f"{row.left} alive after the answer"
    if result.kill is not None and not result.kill.confirmed:
        return "the end was not confirmed"
    if (row.killed or 0) < scene.killed_at_least:
        return f"expected at least {scene.killed_at_least} killed, got {row.killed or 0}"
    return None


def _survivors(mark: str, started: set[_outside.Process]) -> set[_outside.Process]:
    """Who still lives of all that carried the mark or ever descended from the daemon."""
    until = time.monotonic() + GONE_WITHIN_S
    while survivors := _outside.marked(mark) | _outside.alive(started):
        if time.monotonic() > until:
            break
        time.sleep(0.02)
    return survivors


def _line(row: Row) -> str:
    signalled, confirmed = (
        "-" if ms is None else say_duration(ms) for ms in (row.signalled_after_ms, row.confirmed_after_ms)
    )
    killed = "-" if row.killed is None else row.killed
    return _ROW.format(row.what, row.outcome, killed, signalled, confirmed, row.left)


def _as_object(report: Report) -> dict[str, object]:
    rows = [asdict(row) for row in report.rows]
    alive = report.left
    return {"rows": rows, "surprises": report.surprises, "still_alive": alive, "processes_left": len(alive)}


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Told to end: by an exception, so that the daemon is stopped and the files are removed on the way."""
    raise SystemExit(128 + number)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _silent(_text: str) -> None:
    """With ``--json`` the one object at the end is all that is said."""
