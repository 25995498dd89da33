"""Delivery keys of clients, held in memory: which call each stands for. `core/idempotency` says what that means for a
delivery; the journal's call rows have the keys for the next life, which `recall`s them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from supervisor.core.idempotency import DeliveryKey, Earlier, Verdict, verdict

MOST = 100_000


class Claim(NamedTuple):
    """What became of a delivery. ``earlier``: the call that its key stood for already, if any."""

    key: DeliveryKey
    verdict: Verdict
    earlier: str | None = None


class Keys:
    """Which call a delivery key stands for."""

    def __init__(self) -> None:
        self._calls: dict[bytes, tuple[str, bytes]] = {}

    def claim(self, key: DeliveryKey, call: str, what_of: Callable[[str], Earlier]) -> Claim:
        """Judge a delivery; one that is to run stands for its key from now on, as ``call``."""
        claim = self.look(key, what_of)
        if claim.verdict is Verdict.RUN:
            self.recall(key.place, key.said, call)
        return claim

    def look(self, key: DeliveryKey, what_of: Callable[[str], Earlier]) -> Claim:
        """What would become of a delivery. ``what_of(earlier)``: what is known of the call that its key stands for."""
        earlier, said = self._calls.get(key.place, (None, key.said))
        known = Earlier.NONE if earlier is None else what_of(earlier)
        return Claim(key, verdict(known, said == key.said), earlier)

    def recall(self, place: bytes, said: bytes, call: str) -> None:
        """A delivery key stands for a call, from now on or since an earlier life."""
        self._calls.pop(place, None)  # to the end of the line: the oldest is forgotten first
        self._calls[place] = call, said
        if len(self._calls) > MOST:
            del self._calls[next(iter(self._calls))]

    def release(self, place: bytes) -> None:
        """Its call came to nothing, as somebody has found out since: the key is new again."""
        self._calls.pop(place, None)
