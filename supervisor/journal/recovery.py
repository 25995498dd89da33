"""What a new life makes of the last one's journal: the results that are still kept, the delivery keys that are taken,
and a terminal record for every call that the last daemon did not live to settle.

An interrupted call is never run again from here. What is known of its delivery is said: one that was only planned did
not run; one that was claimed may have, and nobody saw the end (its worker died with the daemon).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from protocol._deadlines import NS_PER_MS
from protocol._outcomes import CallResult, Delivery, ErrorClass, ErrorInfo, OutputInfo, Reason, Status, Timing
from supervisor.journal import rows
from supervisor.journal.effect_rows import EffectRow, open_effects
from supervisor.journal.output_report import Written, look_into, output_of
from supervisor.journal.outputs import edges
from supervisor.journal.results import MOST, KeptCall, pack
from supervisor.journal.store import Change, Store

MOST_OPEN = 10_000
"""Open effects that are kept: see `effects.Effects`."""
_STREAMS = ("both", "stdout", "stderr")
_COLUMNS = "id, uid, run, tool, place, said, key, read_only, deadline_ms, arguments, submitted_ms, call_fp"
_UNSETTLED = f"SELECT {_COLUMNS}, state FROM calls WHERE {rows.STILL_OPEN}"  # noqa: S608  # our own words
_KEPT = """SELECT id, uid, result, files, expires_ms, output_bytes FROM calls
    WHERE result IS NOT NULL ORDER BY expires_ms DESC LIMIT ?"""


class Key(NamedTuple):
    """A delivery key that stands for a call: see `keys.Keys`."""

    place: bytes
    said: bytes
    call: str


class Recovered(NamedTuple):
    """What of the last life goes on. ``interrupted``: calls that were settled here; ``effects``: those whose outcome is
    not known, of all lives."""

    kept: list[KeptCall]
    keys: list[Key]
    interrupted: int
    effects: list[EffectRow]


class Clocks(NamedTuple):
    """The same instant on both clocks: the journal's stamps are wall time, a daemon counts in its own."""

    now_ns: int
    wall_ms: int


def recover(store: Store, outputs: str, ttl_ms: int, clocks: Clocks) -> Recovered:
    """Settle what was interrupted, then read what is kept. Blocking. Raises StoreError."""
    interrupted = _settle_interrupted(store, outputs, ttl_ms, clocks)
    return Recovered(list(_kept(store, clocks)), list(_keys(store)), interrupted, open_effects(store, MOST_OPEN))


def _settle_interrupted(store: Store, outputs: str, ttl_ms: int, clocks: Clocks) -> int:
    changes: list[Change] = []
    found = list(store.rows(_UNSETTLED))
    for *fields, state in found:
        row = rows.CallRow(*fields)
        result = _interrupted(row, str(state), outputs, clocks.wall_ms)
        files = tuple(info.path for info in result.output.streams.values() if info.path)
        kept = pack(row.uid, result, files, clocks.now_ns + ttl_ms * NS_PER_MS)
        changes += rows.settled(row, result, kept, clocks.wall_ms + ttl_ms, clocks.wall_ms)
    if found:
        store.commit(changes)
    return len(found)


def _interrupted(row: rows.CallRow, state: str, outputs: str, wall_ms: int) -> CallResult:
    delivered = state != rows.PLANNED
    text = (
        "the daemon was restarted while the call ran; whether it did its work is not known"
        if delivered
        else "the daemon was restarted before the call was sent; it did not run"
    )
    return CallResult(
        row.id,
        row.tool,
        Status.UNKNOWN,
        row.run,
        Reason.DAEMON_RESTARTED,
        error=ErrorInfo(ErrorClass.WORKER_LOST, str(Reason.DAEMON_RESTARTED), text),
        retryable=not delivered or bool(row.read_only),
        summary=f"{row.tool}: unknown (daemon_restarted)",
        delivery=Delivery.UNKNOWN if delivered else Delivery.NOT_DELIVERED,
        timing=Timing(duration_ms=max(0, wall_ms - row.submitted_ms), deadline_ms=row.deadline_ms),
        output=_output_left(row.id, outputs),
        idempotency_key=row.key,
        durable=True,
    )


def _output_left(call: str, outputs: str) -> OutputInfo:
    """What the call had written until then."""
    written = []
    for name in _STREAMS:
        path = os.path.join(outputs, f"{call}.{name}")
        with contextlib.suppress(OSError):
            size = edges(path)[2]
            written.append(Written(name, size, path if size else None))
    output = output_of(written, truncated=False) if written else OutputInfo()
    if output.bytes:
        with contextlib.suppress(OSError):
            look_into(output)
    return output


def _kept(store: Store, clocks: Clocks) -> Iterator[KeptCall]:
    """Oldest first, as they are forgotten. One whose time was up meanwhile is forgotten by the first look."""
    for call, uid, packed, files, expires_ms, output_bytes in reversed(list(store.rows(_KEPT, (MOST,)))):
        until_ns = clocks.now_ns + (expires_ms - clocks.wall_ms) * NS_PER_MS
        yield KeptCall(call, uid, packed, tuple(msgspec.json.decode(files)), until_ns, output_bytes)


def _keys(store: Store) -> Iterator[Key]:
    for place, said, call in store.rows(
        "SELECT place, said, id FROM calls WHERE place IS NOT NULL ORDER BY submitted_ms"
    ):
        yield Key(place, said, call)
