"""How much is run, and in which order: the full run, or the quick one that shows whether the bench works."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Plan:
    """One run's size. The order within rounds is drawn from a fixed seed: no side is always the first."""

    quick: bool = False
    _draw: random.Random = field(default_factory=lambda: random.Random(7))

    def of(self, full: int, quick: int) -> int:
        """So many in this run."""
        return quick if self.quick else full

    def shuffled(self, things: Iterable[One]) -> list[One]:
        """In an order of chance."""
        mixed = list(things)
        self._draw.shuffle(mixed)
        return mixed
