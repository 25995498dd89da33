"""The hash chain of the log: each record's hash covers the record and the hash before it, so that a record which was
changed, taken out or put in shows. Tamper-evident, not tamper-proof: whoever may write the file may write all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

GENESIS = bytes(32)
"""What stands before the first record."""
_ENCODER = msgspec.msgpack.Encoder()


class Record(NamedTuple):
    """A numbered record. ``data`` is JSON text, exactly as it is stored."""

    seq: int
    at_ms: int
    kind: str
    call: str | None
    run: str | None
    uid: int | None
    data: str


class BrokenChain(NamedTuple):
    """Where a chain does not hold: the first record that is not what its hash says, or that is missing."""

    seq: int
    why: str


def link(previous: bytes, record: Record) -> bytes:
    """The hash of ``record`` behind a record with the hash ``previous``: 32 bytes."""
    return hashlib.sha256(previous + _ENCODER.encode(record)).digest()


def verify(anchor_seq: int, anchor: bytes, records: Iterable[tuple[Record, bytes]]) -> BrokenChain | None:
    """Walk a chain from the record ``anchor_seq`` (hash ``anchor``) on; None when it holds."""
    expected, previous = anchor_seq + 1, anchor
    for record, stored in records:
        if record.seq != expected:
            return BrokenChain(expected, f"record {expected} is missing; {record.seq} follows")
        previous = link(previous, record)
        if previous != stored:
            return BrokenChain(record.seq, f"record {record.seq} is not what its hash says")
        expected += 1
    return None
