"""Results of settled calls, kept in memory until their time is up. (The journal on disk takes this place later.)

A result is kept as the bytes of its message: every reader gets the same ones, and a hundred thousand of them are a few
objects to the collector and not a few million.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from protocol._deadlines import NS_PER_MS
from protocol._outcomes import CallResult

MOST = 100_000
MOST_BYTES = 48 << 20
"""What is kept at once; the oldest go first, as when their time was up."""
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(CallResult)


class KeptCall(msgspec.Struct, gc=False, frozen=True):
    """A settled call: who may ask for it, its result's bytes, the paths that go with it."""

    id: str
    uid: int
    packed: bytes
    files: tuple[str, ...]
    until_ns: int

    @property
    def result(self) -> CallResult:
        """The result, as it was told."""
        return _DECODER.decode(self.packed)


class ResultStore:
    """Settled calls by id, forgotten ``ttl_ms`` after they settled; ``forget`` is told of the files of each."""

    def __init__(self, ttl_ms: int, forget: Callable[[tuple[str, ...]], None], most_bytes: int = MOST_BYTES) -> None:
        self._ttl_ns = ttl_ms * NS_PER_MS
        self._forget = forget
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, KeptCall] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, uid: int, result: CallResult, files: list[str], now_ns: int) -> KeptCall:
        """Keep a settled call."""
        kept = KeptCall(result.call, uid, _ENCODER.encode(result), tuple(files), now_ns + self._ttl_ns)
        self._kept[result.call] = kept
        self._bytes += len(kept.packed)
        while self._bytes > self._most_bytes or len(self._kept) > MOST:
            self._drop_first()
        return kept

    def get(self, call: str) -> KeptCall | None:
        """A call that is still kept."""
        return self._kept.get(call)

    def expire(self, now_ns: int) -> None:
        """Forget what is older than the time to live."""
        while self._kept and next(iter(self._kept.values())).until_ns <= now_ns:
            self._drop_first()

    def clear(self) -> None:
        """Forget everything."""
        while self._kept:
            self._drop_first()

    def _drop_first(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._bytes -= len(kept.packed)
        if kept.files:
            self._forget(kept.files)
