"""`python -m tests.mutants [--only WORDS] [--sample N] [--seed S] [--lanes N]`

Applies each weakened build to a copy of the tree and runs its suite there. Exit 0 when every one turned its suite red
and every suite is green without it, 1 when one survived, 2 for a usage error.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.listing import MUTANTS, Mutant

REPOSITORY = Path(__file__).resolve().parents[2]
_COPIED = ("protocol", "toolworkers", "supervisor", "deadlined", "tests", "docs", "bench", "examples", "pyproject.toml")
_LIMIT_S = 300
_RED = 1
"""Pytest's exit code for tests that failed; any other one says that the mutant broke more than a promise."""


def main() -> int:
    asked = _arguments()
    chosen = choose(asked.only, asked.sample, asked.seed)
    if not chosen:  # none of none survived, and that shows nothing
        sys.stderr.write(f"mutants: none has {asked.only!r} in its name or its file\n")
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deadlined-mutants-") as directory:
        suites = sorted({mutant.suite for mutant in chosen})
        with ThreadPoolExecutor(asked.lanes) as pool:
            green = list(pool.map(lambda suite: run_suite(copy_tree(Path(directory)), suite), suites))
            codes = list(pool.map(lambda mutant: run_mutant(Path(directory), mutant), chosen))
    bad = [
        f"  {suite} is not green by itself (pytest says {code})"
        for suite, code in zip(suites, green, strict=True)
        if code
    ]
    bad += [
        f"  survived: {mutant.name} ({mutant.file})" for mutant, code in zip(chosen, codes, strict=True) if code != _RED
    ]
    red = sum(code == _RED for code in codes)
    figures = f"mutants: {red} of {len(chosen)} turned their suite red; seed {asked.seed}"
    sys.stdout.write("\n".join([f"{figures}, {time.monotonic() - began:.1f} s", *bad]) + "\n")
    return 1 if bad else 0


def choose(only: str, sample: int, seed: int) -> list[Mutant]:
    """Those whose name or file has the words; so many of them, drawn by the seed."""
    chosen = [mutant for mutant in MUTANTS if only in f"{mutant.name} {mutant.file}"]
    return random.Random(seed).sample(chosen, min(sample, len(chosen))) if sample else chosen


def copy_tree(directory: Path) -> Path:
    """A copy of what the tests need, in a directory of its own."""
    copy = Path(tempfile.mkdtemp(dir=directory))
    for name in _COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    return copy


def run_mutant(directory: Path, mutant: Mutant) -> int:
    """Pytest's exit code for the mutant's suite."""
    copy = copy_tree(directory)
    file = copy / mutant.file
    file.write_text(weakened(file.read_text(encoding="utf-8"), mutant), encoding="utf-8")
    return run_suite(copy, mutant.suite)


def weakened(text: str, mutant: Mutant) -> str:
    """The file with the mutant's text in it. Raises ValueError where the old one is not there exactly once."""
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def run_suite(copy: Path, suite: str) -> int:
    """Pytest's exit code, in the copy and with its packages."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suite.split()]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(words, cwd=copy, env=environment, capture_output=True, timeout=_LIMIT_S)
    return ran.returncode


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Show that the tests can fail.")
    parser.add_argument("--only", default="", metavar="WORDS", help="those whose name or file has the words")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many, drawn at random")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the draw")
    parser.add_argument("--lanes", type=int, default=2, metavar="N", help="suites that run at once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
