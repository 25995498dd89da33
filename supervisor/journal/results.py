"""Results of settled calls, at hand until their time is up; `rows` has those that must outlive the daemon on disk.

A result is kept as the bytes of its message: every reader gets the same ones, and a hundred thousand of them are a few
objects to the collector and not a few million.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from protocol._outcomes import CallResult

MOST = 100_000
MOST_BYTES = 40 << 20
"""What is kept at once; the oldest go first, as when their time was up."""
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


def pack(uid: int, result: CallResult, files: tuple[str, ...], until_ns: int) -> KeptCall:
    """A result as it is told from now on."""
    return KeptCall(result.call, uid, _ENCODER.encode(result), files, until_ns, result.output.bytes)


def digest(result: CallResult, kept: KeptCall) -> str:
    """SHA-256 (hex) of a result, whatever became of it on its way to the disk: ``durable`` is left out."""
    if result.durable is None:
        return hashlib.sha256(kept.packed).hexdigest()
    return hashlib.sha256(_ENCODER.encode(msgspec.structs.replace(result, durable=None))).hexdigest()


class ResultStore:
    """Settled calls by id, forgotten when their time is up; ``forget`` is told of each."""

    def __init__(
        self,
        forget: Callable[[KeptCall], None],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._forget = forget
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, KeptCall] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, kept: KeptCall) -> None:
        """Keep a settled call."""
        self._kept[kept.id] = kept
        self._bytes += kept.memory
        while self._too_much():
            self._drop_first()

    def _too_much(self) -> bool:
        full = self._bytes > self._most_bytes or len(self._kept) > MOST
        return full and len(self._kept) > 1  # the newest is somebody's answer

    def get(self, call: str) -> KeptCall | None:
        """A call that is still kept."""
        return self._kept.get(call)

    def expire(self, now_ns: int) -> None:
        """Forget those whose time is up."""
        while self._kept and next(iter(self._kept.values())).until_ns <= now_ns:
            self._drop_first()

    def _drop_first(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._bytes -= kept.memory
        self._forget(kept)
