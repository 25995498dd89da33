"""Weakened builds (`tests/mutants`), drawn by the seed: each must turn its suite red. That the suites are green without
them is what `make test` says. `make mutants` runs every one."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.mutants.__main__ import choose, run_mutant
from tests.mutants.listing import MUTANTS
from tests.trust.registry import Figures, Suite

_RED = 1


def run(count: int, seed: int) -> Figures:
    """So many of them, at most all."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="deadlined-mutants-") as directory:
        for mutant in choose("", min(count, len(MUTANTS)), seed):
            figures.tried += 1
            try:
                code = run_mutant(Path(directory), mutant)
            except (ValueError, subprocess.TimeoutExpired) as error:
                figures.fail(f"{mutant.name}: {error}")
                continue
            if code != _RED:
                figures.fail(f"survived ({code}): {mutant.name} in {mutant.file}")
    return figures


SUITE = Suite(passes_when="each turns the tests red that hold what it takes away", push=5, long=len(MUTANTS), run=run)
