"""Which slots of the deadline table no worker has. Shared by all pools, because the table is."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable


class Slots:
    """The free ones. Who stands in ``on_free`` is called whenever one has become free."""

    def __init__(self, count: int) -> None:
        self._free = deque(range(count))
        self._claims: Counter[str] = Counter()
        self.on_free: list[Callable[[], None]] = []

    def take(self) -> int:
        """A free slot, the one that has been free for longest. There must be one: see `open_to`."""
        return self._free.popleft()

    def give(self, slot: int) -> None:
        """Its worker is gone."""
        self._free.append(slot)
        for tell in self.on_free:
            tell()

    def claim(self, flavour: str, calls: int) -> None:
        """So many calls wait for a worker of a flavour."""
        self._claims[flavour] = calls

    def open_to(self, flavour: str) -> int:
        """How many a flavour may take. One that no call waits for leaves to others what their calls wait for."""
        free = len(self._free)
        if not free or self._claims[flavour]:
            return free
        return max(0, free - self._claims.total())
