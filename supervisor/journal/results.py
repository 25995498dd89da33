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
MOST_BYTES = 40 << 20
MOST_OUTPUT = 1 << 30
"""What is kept at once, in memory and of raw outputs on disk; the oldest go first, as when their time was up."""
_OVERHEAD_BYTES = 600
"""What Python adds to a kept result: its object, its name, its place in the table."""
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(CallResult)


class KeptCall(msgspec.Struct, gc=False, frozen=True):
    """A settled call: who may ask for it, its result's bytes, the paths that go with it."""

    id: str
    uid: int
    packed: bytes
    files: tuple[str, ...]
    until_ns: int
    output_bytes: int = 0

    @property
    def memory(self) -> int:
        """About what it takes in memory, in bytes."""
        return len(self.packed) + _OVERHEAD_BYTES + sum(len(path) + 60 for path in self.files)

    @property
    def result(self) -> CallResult:
        """The result, as it was told."""
        return _DECODER.decode(self.packed)


class ResultStore:
    """Settled calls by id, forgotten ``ttl_ms`` after they settled; ``forget`` is told of the files of each."""

    def __init__(
        self,
        ttl_ms: int,
        forget: Callable[[tuple[str, ...]], None],
        most_bytes: int = MOST_BYTES,
        most_output: int = MOST_OUTPUT,
    ) -> None:
        self._ttl_ns = ttl_ms * NS_PER_MS
        self._forget = forget
        self._most_bytes, self._most_output = most_bytes, most_output
        self._bytes = self._output = 0
        self._kept: OrderedDict[str, KeptCall] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, uid: int, result: CallResult, files: list[str], now_ns: int) -> KeptCall:
        """Keep a settled call."""
        until_ns, output = now_ns + self._ttl_ns, result.output.bytes
        kept = KeptCall(result.call, uid, _ENCODER.encode(result), tuple(files), until_ns, output)
        self._kept[result.call] = kept
        self._bytes += kept.memory
        self._output += output
        while self._too_much():
            self._drop_first()
        return kept

    def _too_much(self) -> bool:
        full = self._bytes > self._most_bytes or self._output > self._most_output or len(self._kept) > MOST
        return full and len(self._kept) > 1  # the newest is somebody's answer

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
        self._bytes -= kept.memory
        self._output -= kept.output_bytes
        if kept.files:
            self._forget(kept.files)
