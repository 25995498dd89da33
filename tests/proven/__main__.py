"""`python -m tests.proven cases|behaviours [--collect] [--lanes N]`

Runs the tests marked for a list, says how many of its rows they prove and lists the others with the reason. Exit 0 when
no marked test failed, 1 when one did or pytest broke, 2 for a usage error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.proven.listing import SUBJECTS, TESTS, Row, Subject
from tests.proven.verdict import Outcomes, Verdict, verdict

_FINE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main() -> int:
    asked = _arguments()
    subject = SUBJECTS[asked.subject]
    rows = subject.rows()
    began = time.monotonic()
    code, outcomes = run_marked(subject, asked.lanes, asked.collect)
    found = verdict(rows, outcomes, "collected" if asked.collect else "passed")
    _say(report(subject, rows, found, len(outcomes), time.monotonic() - began, asked.collect))
    return 0 if code in _FINE and not found.red else 1


def run_marked(subject: Subject, lanes: int, collect: bool) -> tuple[int, Outcomes]:
    """Pytest's exit code, and what became of every marked test."""
    with tempfile.TemporaryDirectory(prefix="deadlined-proven-") as directory:
        record = Path(directory) / "record.json"
        words = ["-q", "-m", subject.mark, "-p", "tests.proven.recorder", "--proven-mark", subject.mark]
        words += ["--proven-record", str(record)]
        words += ["--collect-only"] if collect else ["-n", str(lanes), "--dist", "loadfile"]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *words, str(TESTS)],
            cwd=TESTS.parent,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            stdout=subprocess.DEVNULL if collect else None,
        )
        return ran.returncode, json.loads(record.read_text()) if record.exists() else {}


def report(subject: Subject, rows: dict[str, Row], found: Verdict, tests: int, seconds: float, collect: bool) -> str:
    """One line of figures, then a line for each row that is not proven."""
    did = "have a test" if collect else "proven"
    beside = f", {len(found.entailed)} entailed by others, {len(found.documented)} by documentation alone"
    also = beside if found.entailed or found.documented else ""
    lines = [f"{subject.name}: {len(found.proven)} of {len(rows)} {did}{also}; {tests} marked tests, {seconds:.1f} s"]
    for id_, why in found.missing.items():
        source = f"{rows[id_].source:<45} " if rows[id_].source else ""
        lines.append(f"  {id_}  {source}{why}; wanted: {rows[id_].holds}")
    lines += [f"  red: {test}" for test in found.red]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proven", description="Say what the tests prove.")
    parser.add_argument("subject", choices=sorted(SUBJECTS), help="the list to go by")
    parser.add_argument("--collect", action="store_true", help="count the marked tests, run none")
    parser.add_argument("--lanes", type=int, default=2, metavar="N", help="tests that run at once")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
