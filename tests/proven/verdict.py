"""From what became of the marked tests to what is proven: every marked test of an id passed, and there is one.

A skipped test proves nothing, nor does one that never came to run. A row that others entail is proven when they all
are; one that a page shows, when the page has its section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.proven.listing import Row

REPOSITORY = Path(__file__).resolve().parents[2]

Outcomes = dict[str, dict[str, object]]
"""By test: ``ids``, ``outcome``, ``why``."""


@dataclass
class Verdict:
    """``proven`` by tests, ``entailed`` by rows that are proven, ``documented`` by a page; ``missing``: why each other
    id is not. ``red``: marked tests that failed."""

    proven: list[str] = field(default_factory=list)
    entailed: list[str] = field(default_factory=list)
    documented: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    red: list[str] = field(default_factory=list)


def verdict(rows: Mapping[str, Row], outcomes: Outcomes, good: str = "passed") -> Verdict:
    """``good``: the outcome that counts, which is ``collected`` when tests were only counted."""
    found = Verdict(red=sorted(test for test, seen in outcomes.items() if seen["outcome"] == "failed"))
    for id_, row in rows.items():
        if row.entailed_by:
            continue
        why = (row.needs and f"needs {row.needs}") or (
            _no_section(row.doc) if row.doc else _why_not(id_, outcomes, good)
        )
        if why:
            found.missing[id_] = why
        else:
            (found.documented if row.doc else found.proven).append(id_)
    _entail(rows, found)
    return found


def _entail(rows: Mapping[str, Row], found: Verdict) -> None:
    """Rows that others entail, in as many rounds as chains are long; what is left then is not proven."""
    waiting = {id_: row.entailed_by for id_, row in rows.items() if row.entailed_by}
    while True:
        shown = {*found.proven, *found.entailed}
        now = [id_ for id_, by in waiting.items() if shown.issuperset(by)]
        if not now:
            break
        found.entailed += now
        for id_ in now:
            del waiting[id_]
    for id_, by in waiting.items():
        found.missing[id_] = f"entailed by {', '.join(one for one in by if one not in shown)}, not proven"


def _no_section(place: str) -> str:
    """Why a page does not show a row; empty: it has the section."""
    page, _, section = place.partition("#")
    file = REPOSITORY / page
    if not file.is_file():
        return f"no page {page}"
    titles = [line.lstrip("#").strip() for line in file.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    return "" if not section or section in {_anchor(title) for title in titles} else f"no section {place}"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")


def _why_not(id_: str, outcomes: Outcomes, good: str) -> str:
    of_it = [(test, seen) for test, seen in outcomes.items() if id_ in _ids(seen)]
    if not of_it:
        return "no test"
    for test, seen in of_it:
        if seen["outcome"] != good:
            return f"{seen['outcome']}: {seen['why'] or test}"
    return ""


def _ids(seen: dict[str, object]) -> list[str]:
    ids = seen["ids"]
    assert isinstance(ids, list)
    return ids
