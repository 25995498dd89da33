"""The outcomes as one table. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.compare.catalogue import KINDS, SETUPS, Setup
from bench.compare.ledger import Figures
from bench.compare.script import DONE, GIVEN_UP

_HEADINGS = (
    "bounded by",
    "told after",
    "run over",
    "effect stopped",
    "begun",
    "charged",
    "late",
    "left when told",
    "when over",
    "the caller got",
)
_LEFT_ALIGNED = {0, 7, 8, 9}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cell: its figures, or in words why there are none."""

    setup: Setup
    kind: str
    figures: Figures | None = None
    why_none: str = ""
    broken: bool = False

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        head = {
            "peer": self.setup.package,
            "version": self.setup.version(),
            "bound": self.setup.bound,
            "kind": self.kind,
        }
        return {**head, **(self.figures.plain() if self.figures else {"none": self.why_none, "broken": self.broken})}


def versions() -> str:
    """Every package that is compared, by name, installed or not."""
    return "\n".join(f"  {name} {version or 'is not installed'}" for name, version in installed().items())


def installed() -> dict[str, str | None]:
    """Package → version."""
    return {setup.package: setup.version() for setup in SETUPS}


def table(outcomes: Iterable[Outcome]) -> str:
    """All of it, one block a kind."""
    by_kind: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_kind.setdefault(outcome.kind, []).append(outcome)
    rows = {kind: [_row(outcome) for outcome in found] for kind, found in by_kind.items()}
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *_full(rows), strict=True)]
    lines = [_line(_HEADINGS, widths)]
    for kind, found in rows.items():
        lines += ["", f"{kind}: {KINDS[kind]}", *(_line(row, widths) for row in found)]
    return "\n".join(lines)


def _full(rows: dict[str, list[Sequence[str]]]) -> list[Sequence[str]]:
    """Those with a cell in every column."""
    return [row for found in rows.values() for row in found if len(row) == len(_HEADINGS)]


def _row(outcome: Outcome) -> Sequence[str]:
    name = f"{outcome.setup.package.removesuffix('-slim')}: {outcome.setup.bound}"
    got = outcome.figures
    if got is None:
        return [name, f"{'BROKEN ' if outcome.broken else ''}{outcome.why_none}"]
    figures = (f"{_seconds(got.told_s)} {got.told_whom}", _seconds(got.over_s), _seconds(got.stopped_s))
    counts = (str(got.executions), str(got.charges), str(got.late))
    return [name, *figures, *counts, _counted(got.left_when_told), _counted(got.left_when_over), _brief(got.ended)]


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _counted(kinds: Sequence[str]) -> str:
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    plurals = {"thread": "threads", "process": "processes", "task": "tasks"}
    return ", ".join(f"{count} {kind if count == 1 else plurals[kind]}" for kind, count in counts.items()) or "nothing"


def _brief(ended: str) -> str:
    """The model's last word, or an exception's or a status's name."""
    return {DONE: '"paid"', GIVEN_UP: '"not paid"'}.get(ended) or ended.partition(":")[0]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    if len(cells) < len(widths):
        return f"  {cells[0]:<{widths[0]}}  – {cells[1]}"
    aligned = (
        f"{cell:<{width}}" if number in _LEFT_ALIGNED else f"{cell:>{width}}"
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"  {'  '.join(aligned)}".rstrip()
