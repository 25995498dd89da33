"""What a run has seen, and for how many steps in a row it has seen nothing new. Owns the novelty set and that count.

Rules
1. New is what this run has never seen: not "other than the last". What is seen again is remembered the longer for it.
2. At most ``MOST_SEEN`` things are remembered, those seen last; long names by their digest.
3. A step with anything new ends the row; a step without lengthens it.
4. A step in which nothing but polls was executed does neither: waiting has a detector of its own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

MOST_SEEN = 4_096
_LONGEST = 64
"""A fingerprint is no longer, and need not be digested again."""


class Novelty:
    """Of one run. `see` takes what was seen, `did` that a call was made, `step_over` gives the row's length."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self.row = 0
        self._new = self._polled = self._worked = False

    def __len__(self) -> int:
        return len(self._seen)

    def see(self, kind: str, name: str) -> bool:
        """Whether this is new. ``kind``: one letter for what it is, so that things of two kinds are never the same."""
        mark = kind + (name if len(name) <= _LONGEST else _digest(name))
        if mark in self._seen:
            self._seen.move_to_end(mark)
            return False
        self._seen[mark] = None
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        self._new = True
        return True

    def did(self, *, poll: bool) -> None:
        """A call was executed, or (as any other than a poll) was refused."""
        if poll:
            self._polled = True
        else:
            self._worked = True

    def step_over(self) -> int:
        """A step has ended: how many in a row have brought nothing new."""
        if self._new:
            self.row = 0
        elif self._worked or not self._polled:
            self.row += 1
        self._new = self._polled = self._worked = False
        return self.row

    def dump(self) -> list[Any]:
        """The state as JSON can carry it."""
        return [self.row, self._new, self._polled, self._worked, list(self._seen)]

    def load(self, state: list[Any]) -> None:
        """Take over what `dump` gave."""
        self.row, self._new, self._polled, self._worked, seen = state
        self._seen = OrderedDict.fromkeys(seen)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_LONGEST]
