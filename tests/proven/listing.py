"""The lists of what is asked for: each in a file of its own, with a mark of its own."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Row:
    """``source``: who asked, where somebody did. ``holds``: what must hold, in our words.

    A row is shown by marked tests, or, where it says so: ``entailed_by`` other rows, all of them; by a page (``doc``,
    with its section); or not yet, because it ``needs`` something that is not built.
    """

    source: str
    holds: str
    entailed_by: tuple[str, ...] = ()
    doc: str | None = None
    needs: str | None = None


@dataclass(frozen=True)
class Subject:
    """One list. ``mark`` is the pytest mark whose arguments are ids of it."""

    name: str
    mark: str
    file: Path

    def rows(self) -> dict[str, Row]:
        """Every row by its id, in the file's order. Raises KeyError for a row that does not say what holds."""
        with self.file.open("rb") as file:
            return {id_: _row(row) for id_, row in tomllib.load(file).items()}


def _row(row: dict[str, Any]) -> Row:
    entailed_by = tuple(row.get("entailed_by", ()))
    return Row(row.get("from", ""), row["holds"], entailed_by, row.get("doc"), row.get("needs"))


SUBJECTS = {
    "behaviours": Subject("behaviours", "behaviour", TESTS / "behaviours.toml"),
    "cases": Subject("cases", "case", TESTS / "cases.toml"),
}
