"""From what became of the marked tests to what is proven: every marked test of an id passed, and there is one.

A skipped test proves nothing, nor does one that never came to run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Outcomes = dict[str, dict[str, object]]
"""By test: ``ids``, ``outcome``, ``why``."""


@dataclass
class Verdict:
    """``missing``: why each id that is not proven is not. ``red``: marked tests that failed."""

    proven: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    red: list[str] = field(default_factory=list)


def verdict(ids: Iterable[str], outcomes: Outcomes, good: str = "passed") -> Verdict:
    """``good``: the outcome that counts, which is ``collected`` when tests were only counted."""
    found = Verdict(red=sorted(test for test, seen in outcomes.items() if seen["outcome"] == "failed"))
    for id_ in ids:
        why = _why_not(id_, outcomes, good)
        if why:
            found.missing[id_] = why
        else:
            found.proven.append(id_)
    return found


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
