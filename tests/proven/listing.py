"""The lists of what is asked for: each in a file of its own, with a mark of its own."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Row:
    """``source``: who asked. ``holds``: what must hold, in our words."""

    source: str
    holds: str


@dataclass(frozen=True)
class Subject:
    """One list. ``mark`` is the pytest mark whose arguments are ids of it."""

    name: str
    mark: str
    file: Path

    def rows(self) -> dict[str, Row]:
        """Every row by its id, in the file's order. Raises KeyError for a row that does not say both."""
        with self.file.open("rb") as file:
            return {id_: Row(row["from"], row["holds"]) for id_, row in tomllib.load(file).items()}


SUBJECTS = {"cases": Subject("cases", "case", TESTS / "cases.toml")}
