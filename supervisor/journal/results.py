"""Results of settled calls, kept in memory until their time is up. (The journal on disk takes this place later.)

Owns who may ask for a call again: a call id is never authentication, so every look-up names the asking uid.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from protocol._deadlines import NS_PER_MS

Kept = TypeVar("Kept")
MOST = 100_000
"""Results kept at once; the oldest go first, as when their time was up."""


class ResultStore(Generic[Kept]):
    """Settled calls by id, forgotten ``ttl_ms`` after they settled; ``forget`` is told of each that goes."""

    def __init__(self, ttl_ms: int, forget: Callable[[Kept], None], most: int = MOST) -> None:
        self._ttl_ns = ttl_ms * NS_PER_MS
        self._forget = forget
        self._most = most
        self._kept: OrderedDict[str, tuple[int, Kept]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, call: str, kept: Kept, now_ns: int) -> None:
        """Keep a settled call."""
        self._kept[call] = (now_ns + self._ttl_ns, kept)
        if len(self._kept) > self._most:
            self._drop_first()

    def get(self, call: str) -> Kept | None:
        """A call that is still kept."""
        found = self._kept.get(call)
        return found[1] if found else None

    def expire(self, now_ns: int) -> None:
        """Forget what is older than the time to live."""
        while self._kept and next(iter(self._kept.values()))[0] <= now_ns:
            self._drop_first()

    def clear(self) -> None:
        """Forget everything."""
        while self._kept:
            self._drop_first()

    def _drop_first(self) -> None:
        _, (_, kept) = self._kept.popitem(last=False)
        self._forget(kept)
