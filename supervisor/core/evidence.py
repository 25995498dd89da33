"""What a run has that an answer may rest on: names that its client has reported, and ids of its calls that succeeded.

Bounded: the latest ``MOST_KEPT``. A name that is longer than it can matter is kept as its digest.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

MOST_KEPT = 4_096
_LONGEST = 200


class Evidence:
    """Of one run."""

    def __init__(self, kept: Iterable[str] = ()) -> None:
        """``kept``: what `dump` gave."""
        self._kept: OrderedDict[str, None] = OrderedDict.fromkeys(kept)

    def add(self, name: str) -> None:
        """The run has it from now on."""
        mark = _mark(name)
        self._kept[mark] = None
        self._kept.move_to_end(mark)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def __contains__(self, name: str) -> bool:
        return _mark(name) in self._kept

    def latest(self, count: int) -> list[str]:
        """The last ones, oldest first."""
        return list(self._kept)[-count:]

    def dump(self) -> list[str]:
        """The state as JSON can carry it."""
        return list(self._kept)


def _mark(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
