"""Rows, their targets, and the tables they are printed in. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench._stats import Rounds, Summary, ratio, summary

REACHED, NOT_REACHED, UNJUDGED = "ok", "NOT REACHED", ""
_HEADINGS = ("what", "n", "min", "p50", "p99", "max", "unit", "floor", "× floor", "target", "")
_LEFT = {0, 6, 9, 10}


@dataclass(frozen=True, slots=True)
class Target:
    """What a row must reach; None = not asked. Upper bounds, but ``least``, a lower bound of the median."""

    p50: float | None = None
    p99: float | None = None
    most: float | None = None
    least: float | None = None
    ratio: float | None = None

    def __str__(self) -> str:
        words = [
            f"{name} {sign} {value:g}"
            for name, sign, value in (("p50", "≤", self.p50), ("p99", "≤", self.p99), ("max", "≤", self.most))
            if value is not None
        ]
        if self.least is not None:
            words.append(f"≥ {self.least:g}")
        if self.ratio is not None:
            words.append(f"≤ {self.ratio:g} × floor")
        return ", ".join(words)

    def reached(self, got: Summary, times_floor: float | None) -> bool:
        """Whether every bound that was set holds. A ratio without a floor does not."""
        bounds = ((got.p50, self.p50), (got.p99, self.p99), (got.most, self.most), (times_floor, self.ratio))
        upper = all(bound is None or (value is not None and value <= bound) for value, bound in bounds)
        return upper and (self.least is None or got.p50 >= self.least)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. ``claim``: the line of the specification's table that it answers, with the prototype's
    figure for it; such rows are shown again at the end."""

    what: str
    unit: str
    rounds: Rounds
    floor: Rounds = ()
    target: Target | None = None
    claim: str = ""
    prototype: str = ""

    @property
    def got(self) -> Summary:
        """The row in figures."""
        return summary(self.rounds)

    @property
    def times_floor(self) -> float | None:
        """How many times the floor, by the medians inside each round."""
        return ratio(self.rounds, self.floor)

    @property
    def verdict(self) -> str:
        """``ok``, ``NOT REACHED``, or nothing where nothing was asked."""
        if self.target is None:
            return UNJUDGED
        return REACHED if self.target.reached(self.got, self.times_floor) else NOT_REACHED

    def cells(self) -> tuple[str, ...]:
        """As text, one for each heading."""
        got, times = self.got, self.times_floor
        floor = _short(summary(self.floor).p50) if any(self.floor) else ""
        figures = [_short(value) for value in (got.least, got.p50, got.p99, got.most)]
        target = str(self.target or "")
        return (
            self.what,
            str(got.n),
            *figures,
            self.unit,
            floor,
            f"{times:.2f}" if times else "",
            target,
            self.verdict,
        )

    def plain(self) -> dict[str, Any]:
        """For the JSON file."""
        return {
            "what": self.what,
            "unit": self.unit,
            **asdict(self.got),
            "floor": asdict(summary(self.floor)) if any(self.floor) else None,
            "times_floor": self.times_floor,
            "target": str(self.target) if self.target else None,
            "verdict": self.verdict,
            "claim": self.claim or None,
        }


@dataclass(frozen=True, slots=True)
class Count:
    """A line that is a number of things: so many ``of`` so many, and how many there must be."""

    what: str
    found: int
    of: int
    must_be: int | None = 0
    claim: str = ""
    prototype: str = ""

    @property
    def verdict(self) -> str:
        """As a row's."""
        if self.must_be is None:
            return UNJUDGED
        return REACHED if self.found == self.must_be else NOT_REACHED

    def cells(self) -> tuple[str, ...]:
        """As text, one for each heading."""
        target = "" if self.must_be is None else str(self.must_be)
        return (self.what, str(self.of), "", str(self.found), "", "", f"of {self.of}", "", "", target, self.verdict)

    def plain(self) -> dict[str, Any]:
        """For the JSON file."""
        return {**asdict(self), "verdict": self.verdict}


Line = Row | Count


@dataclass(slots=True)
class Section:
    """What one workload found. ``notes``: remarks under the table."""

    title: str
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def unsafe(self) -> list[Count]:
        """Counts that are not what they must be: unlike a slow figure, each is a defect."""
        return [line for line in self.lines if isinstance(line, Count) and line.verdict == NOT_REACHED]


def table(lines: Iterable[Line]) -> str:
    """The lines under their headings."""
    return _aligned([_HEADINGS, *(line.cells() for line in lines)])


def claims(sections: Iterable[Section]) -> str:
    """The specification's table: what is claimed, the target, what was measured, the floor, the prototype's figure."""
    rows = [("claim", "target", "p50", "p99", "max", "n", "floor", "× floor", "prototype", "")]
    for line in (line for section in sections for line in section.lines if line.claim):
        _what, n, _least, p50, p99, most, unit, floor, times, target, verdict = line.cells()
        claim = f"{line.claim} [{unit}]" if isinstance(line, Row) else line.claim
        rows.append((claim, target, p50, p99, most, n, floor, times, line.prototype, verdict))
    return _aligned(rows, left={0, 1, 8, 9})


def _aligned(rows: Sequence[tuple[str, ...]], left: set[int] = _LEFT) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _short(value: float) -> str:
    """Three digits that matter, and whole numbers from a hundred on."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
