"""What the commands of the bench have alike: their options, the ways in which they end, the file for their figures."""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

INTERRUPTED, DEFECT = 130, 1
_OUT = Path(__file__).resolve().parent / "out"


def parse(words: list[str], prog: str, description: str | None, workloads: Iterable[str], quick: str) -> Any:
    """``quick``, ``only`` and ``json``; ``quick``: what that means here."""
    known = list(workloads)
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", action="append", choices=known, metavar="NAME", help=", ".join(known))
    parser.add_argument("--json", metavar="FILE", help="write every figure to bench/out/FILE as well")
    return parser.parse_args(words)


def end_on_sigterm() -> None:
    """SIGTERM ends a command as Ctrl-C does, by KeyboardInterrupt: every block is left in order."""
    signal.signal(signal.SIGTERM, _interrupt)


def write(file: str, report: dict[str, Any]) -> None:
    """Into the bench's own folder, by the name alone; says where."""
    _OUT.mkdir(exist_ok=True)
    path = _OUT / Path(file).name
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {path}")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
