"""The command: one process a cell, a table at the end. Owns their time and their files."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen
from typing import IO

from bench import _command
from bench._child import next_line, open_child
from bench.compare.catalogue import KINDS, PEERS, SETUPS, Setup
from bench.compare.execution import LEDGER, PLACE, who_is_at_work
from bench.compare.ledger import figures
from bench.compare.table import Outcome, installed, table, versions

_CELL_WITHIN_S = 60.0
"""From the start of a cell, imports included, to its caller's answer."""
_QUIET_WITHIN_S = 20.0
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


def main(words: list[str]) -> int:
    """Run; 0, or 1 when a cell broke, 130 when interrupted."""
    options = _parse(words)
    _command.end_on_sigterm()
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
        return _command.INTERRUPTED
    report = {"python": platform.python_version(), "versions": installed(), "cells": [one.plain() for one in outcomes]}
    print(json.dumps(report, indent=1, ensure_ascii=False) if options.json else f"\n{table(outcomes)}")
    return _command.DEFECT if any(outcome.broken for outcome in outcomes) else 0


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
    with (
        tempfile.TemporaryDirectory(prefix="deadlined-compare-") as name,
        (Path(name) / _WORDS).open("wb") as said,
        _open_cell(setup, kind, name, said) as cell,
    ):
        try:
            told = next_line(cell, _CELL_WITHIN_S)
            _wait_quiet(name)
            lines = (Path(name) / LEDGER).read_text().splitlines()
            return Outcome(setup, kind, figures(lines, told))
        except (OSError, RuntimeError, ValueError) as error:
            print((Path(name) / _WORDS).read_text(errors="replace")[-2000:], file=sys.stderr)
            return Outcome(setup, kind, why_none=f"{type(error).__name__}: {error}", broken=True)


def _open_cell(setup: Setup, kind: str, place: str, stderr: IO[bytes]) -> AbstractContextManager[Popen[bytes]]:
    """A cell; what it and its peer leave goes with ``place``."""
    environment = {**_OFFLINE, PLACE: place, "TMPDIR": place}
    return open_child("bench.compare.cell", setup.peer, setup.name, kind, stderr=stderr, **environment)


def _wait_quiet(place: str) -> None:
    """Until no execution is at work. Raises TimeoutError."""
    until = time.monotonic() + _QUIET_WITHIN_S
    while who_is_at_work(place):
        if time.monotonic() > until:
            raise TimeoutError("executions are still at work")
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
