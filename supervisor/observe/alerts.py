"""Runs that use much, while they go on: what each has used so far, and when that is worth a word. A machine.

Rules
1. A run is watched from its admission to its settlement; of more than `MOST_RUNS` the oldest are watched no longer.
2. What it has used is the sum of what its events say they charged.
3. An alert is said once a run and kind, when more was used than the threshold. A threshold of 0 never is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

MOST_RUNS = 4_096
Kind = Literal["calls", "tokens"]
KINDS: tuple[Kind, ...] = ("calls", "tokens")
Threshold = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class AlertSettings(msgspec.Struct, frozen=True):
    """``[alerts]``: what one run may use before somebody is told. 0: nobody ever is."""

    calls_per_run: Threshold = 40
    tokens_per_run: Threshold = 250_000

    def threshold(self, kind: Kind) -> int:
        """Of one kind."""
        return self.calls_per_run if kind == "calls" else self.tokens_per_run


class Alert(NamedTuple):
    """A run has used more than ``threshold``."""

    run: str
    kind: Kind
    used: int
    threshold: int


class Alerts:
    """What the runs that go on have used."""

    def __init__(self, settings: AlertSettings) -> None:
        self.settings = settings
        self._used: OrderedDict[str, dict[Kind, int]] = OrderedDict()
        self._told: dict[Kind, set[str]] = {kind: set() for kind in KINDS}

    def over(self, kind: Kind) -> int:
        """How many of the runs that go on have used more than the threshold."""
        return len(self._told[kind])

    def opened(self, run: str) -> None:
        """It goes on from here."""
        self._used[run] = dict.fromkeys(KINDS, 0)
        if len(self._used) > MOST_RUNS:
            self.settled(next(iter(self._used)))

    def settled(self, run: str) -> None:
        """It goes on no longer."""
        self._used.pop(run, None)
        for told in self._told.values():
            told.discard(run)

    def charged(self, run: str, charge: Mapping[str, int]) -> list[Alert]:
        """It has used more, or got something back."""
        used = self._used.get(run)
        if used is None:
            return []
        used["calls"] += charge.get("tool_calls", 0)
        if "tool_calls" not in charge:  # no charge is of both
            used["tokens"] += charge.get("tokens_total", charge.get("tokens_in", 0) + charge.get("tokens_out", 0))
        return [self._alert(run, kind, used[kind]) for kind in KINDS if self._is_over(run, kind, used[kind])]

    def _is_over(self, run: str, kind: Kind, used: int) -> bool:
        return 0 < self.settings.threshold(kind) < used and run not in self._told[kind]

    def _alert(self, run: str, kind: Kind, used: int) -> Alert:
        self._told[kind].add(run)
        return Alert(run, kind, used, self.settings.threshold(kind))
