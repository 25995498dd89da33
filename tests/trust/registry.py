"""What a trust suite is, and which there are.

A suite is a module beside this one with a `SUITE`: its name is the module's, so that ``--suite NAME`` finds it and two
people adding suites never edit one list. A suite counts what it tried and what failed, and is deterministic in its seed
as far as the thing under test is.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field

import tests.trust

SHOWN = 5
"""Failures that are kept for the report; all are counted."""


class CannotRun(Exception):  # noqa: N818  # said as the fact it is
    """This host cannot run the suite. That is never a pass."""


@dataclass
class Figures:
    """What a run of a suite found. ``tried`` is what was really tried, not what was asked for."""

    tried: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def fail(self, what: str) -> None:
        """One more failure; ``what`` must be enough to repeat it."""
        self.failed += 1
        if len(self.failures) < SHOWN:
            self.failures.append(what)

    def count(self, what: str, by: int = 1) -> None:
        """A figure beside the verdict."""
        self.counts[what] = self.counts.get(what, 0) + by

    def peak(self, what: str, value: int) -> None:
        """The highest of something, kept under ``peak WHAT``."""
        self.counts[f"peak {what}"] = max(value, self.counts.get(f"peak {what}", 0))

    def add(self, other: Figures) -> None:
        """Take in what another process found. Counts add up; of a ``peak`` the highest stays."""
        self.tried += other.tried
        self.failed += other.failed
        self.failures += other.failures[: SHOWN - len(self.failures)]
        for what, by in other.counts.items():
            if what.startswith("peak"):
                self.counts[what] = max(by, self.counts.get(what, 0))
            else:
                self.count(what, by)


@dataclass(frozen=True)
class Suite:
    """``run(count, seed)`` tries so many; ``push`` and ``long`` are the counts of the two lanes. ``needs``: a module of
    an extra, without which a lane skips it and says so; asked for by its name, it raises CannotRun."""

    passes_when: str
    push: int
    long: int
    run: Callable[[int, int], Figures]
    needs: str = ""


def all_suites() -> dict[str, Suite]:
    """Every suite by name. A module that cannot be imported is an error here, never a suite less."""
    found = {}
    for module in pkgutil.iter_modules(tests.trust.__path__):
        if module.name != "__main__":
            suite = getattr(importlib.import_module(f"tests.trust.{module.name}"), "SUITE", None)
            if isinstance(suite, Suite):
                found[module.name] = suite
    return dict(sorted(found.items()))
