"""The command: one process a cell, a table at the end. Owns those processes, their time and their files."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench._daemon import REPOSITORY, child_environment, end_with_parent
from bench.compare.catalogue import KINDS, PEERS, SETUPS, Setup
from bench.compare.execution import LEDGER, PLACE, who_is_at_work
from bench.compare.ledger import figures
from bench.compare.table import Outcome, installed, table, versions

_CELL_WITHIN_S = 60.0
"""From the start of a cell, imports included, to its caller's answer."""
_QUIET_WITHIN_S, _CLOSES_WITHIN_S = 20.0, 20.0
_LOOK_S = 0.1
_WORDS = "stderr"
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "OPENAI_API_KEY": "none",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}
"""No key, no telemetry: nothing here has a reason to leave the machine."""
_INTERRUPTED, _DEFECT = 130, 1


def main(words: list[str]) -> int:
    """Run; 0, or 1 when a cell broke, 130 when interrupted."""
    options = _parse(words)
    outcomes = []
    print(
        f"Python {platform.python_version()}, Linux {platform.release()}\n{versions()}\n", file=sys.stderr, flush=True
    )
    try:
        for kind in options.kind or KINDS:
            for setup in SETUPS:
                if not options.only or setup.peer in options.only:
                    print(f"  {kind}: {setup.package}, {setup.bound}", file=sys.stderr, flush=True)
                    outcomes.append(outcome_of(setup, kind))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    report = {"python": platform.python_version(), "versions": installed(), "cells": [one.plain() for one in outcomes]}
    print(json.dumps(report, indent=1, ensure_ascii=False) if options.json else f"\n{table(outcomes)}")
    return _DEFECT if any(outcome.broken for outcome in outcomes) else 0


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--only", action="append", choices=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--kind", action="append", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    return parser.parse_args(words)


def outcome_of(setup: Setup, kind: str) -> Outcome:
    """One cell, run to its end; nothing of it is left."""
    if (why := setup.why_not(kind)) or (why := None if setup.version() else "is not installed"):
        return Outcome(setup, kind, why_none=why)
    with tempfile.TemporaryDirectory(prefix="deadlined-compare-") as name, _open_cell(setup, kind, name) as cell:
        try:
            told = _answer(cell)
            _wait_quiet(name)
            lines = (Path(name) / LEDGER).read_text().splitlines()
            return Outcome(setup, kind, figures(lines, told))
        except (OSError, ValueError) as error:
            print((Path(name) / _WORDS).read_text(errors="replace")[-2000:], file=sys.stderr)
            return Outcome(setup, kind, why_none=f"{type(error).__name__}: {error}", broken=True)


@contextmanager
def _open_cell(setup: Setup, kind: str, place: str) -> Iterator[subprocess.Popen[bytes]]:
    """A cell in a session of its own, which is killed as a whole when the block ends."""
    with (Path(place) / _WORDS).open("wb") as stderr:
        cell = subprocess.Popen(
            [sys.executable, "-m", "bench.compare.cell", setup.peer, setup.name, kind],
            cwd=REPOSITORY,
            env={**child_environment(), **_OFFLINE, PLACE: place, "TMPDIR": place},  # what it leaves goes too
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  # this process has one thread
        )
    try:
        yield cell
    finally:
        _end(cell)


def _end(cell: subprocess.Popen[bytes]) -> None:
    """Let it leave by itself (a daemon stops then), and kill its session before its number is free again."""
    assert cell.stdin is not None
    assert cell.stdout is not None
    cell.stdin.close()
    pidfd = os.pidfd_open(cell.pid)
    select.select([pidfd], [], [], _CLOSES_WITHIN_S)
    os.close(pidfd)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(cell.pid, signal.SIGKILL)
    cell.wait()
    cell.stdout.close()


def _answer(cell: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Its one line. Raises TimeoutError, or ValueError with its last words."""
    assert cell.stdout is not None
    until, said = time.monotonic() + _CELL_WITHIN_S, b""
    while not said.endswith(b"\n"):
        if not select.select([cell.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TimeoutError(f"no answer after {_CELL_WITHIN_S:g} s")
        if not (more := os.read(cell.stdout.fileno(), 1 << 16)):
            raise ValueError("it ended without an answer")
        said += more
    told: list[dict[str, Any]] = json.loads(said)
    return told


def _wait_quiet(place: str) -> None:
    """Until no execution is at work. Raises TimeoutError."""
    until = time.monotonic() + _QUIET_WITHIN_S
    while who_is_at_work(place):
        if time.monotonic() > until:
            raise TimeoutError("executions are still at work")
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
