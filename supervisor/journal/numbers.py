"""Numbers of events within their run: 1, 2, 3 without a gap, first in each event's data, where its hash covers them.

Owns the counters, in memory for runs that were heard of lately. Leaves to `store` to look up the others, and to say
which numbers were written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

KEY = "run_seq"
MOST_RUNS = 1_024
"""Counters in memory. Those of a run that is not among them cost a look into the file."""


class Draft(NamedTuple):
    """An event before it has its number. ``data``: JSON text."""

    at_ms: int
    kind: str
    call: str | None
    run: str | None
    uid: int | None
    data: str


class RunNumbers:
    """``look_up(run)``: the number of a run's last event in the file, 0 if it has none there."""

    def __init__(self, look_up: Callable[[str], int]) -> None:
        self._look_up = look_up
        self._written: OrderedDict[str, int] = OrderedDict()
        self._given: dict[str, int] = {}
        """What has been given out and is not written yet."""

    def __len__(self) -> int:
        return len(self._written)

    def number(self, draft: Draft) -> Draft:
        """The draft with its number, if it belongs to a run. Raises what ``look_up`` does."""
        run = draft.run
        if run is None:
            return draft
        number = self._last(run) + 1
        self._given[run] = number
        rest = "}" if draft.data == "{}" else "," + draft.data[1:]
        return draft._replace(data=f'{{"{KEY}":{number}{rest}')

    def keep(self, over: Iterable[str]) -> None:
        """What was given out is written; of the runs in ``over`` there is no more to come."""
        for run, number in self._given.items():
            self._written[run] = number
            self._written.move_to_end(run)
        self._given.clear()
        for run in over:
            self._written.pop(run, None)
        while len(self._written) > MOST_RUNS:
            self._written.popitem(last=False)

    def give_back(self) -> None:
        """What was given out was not written."""
        self._given.clear()

    def _last(self, run: str) -> int:
        number = self._given.get(run) or self._written.get(run)
        return self._look_up(run) if number is None else number
