"""A journal as a daemon leaves it after ten thousand calls, and how long the next one takes to make a life of it."""

from __future__ import annotations

import shutil
import tempfile
import time

from protocol._outcomes import CallResult, Delivery, Status
from supervisor.journal import rows
from supervisor.journal.results import pack
from supervisor.journal.store import Change, Store
from supervisor.revival import revive
from supervisor.runtime import StateDirectory

HOUR_MS = 3_600_000
GROUP = 500
INTERRUPTED = 64
"""As many as may be in flight: claimed, and nobody saw the end."""


def seconds_to_recover(calls: int) -> float:
    """Write ``calls`` settled calls and a few interrupted ones, then start over: from an opened state directory to what
    is known of the last life."""
    parent = tempfile.mkdtemp(prefix="dl-")
    try:
        state = StateDirectory(parent, "0" * 16)
        state.open()
        _write(state.journal, calls)
        began = time.perf_counter()
        revival = revive(state, HOUR_MS)
        seconds = time.perf_counter() - began
        assert len(revival.recovered.kept) == calls + INTERRUPTED
        assert len(revival.recovered.keys) == calls
        assert revival.recovered.interrupted == INTERRUPTED
        revival.store.close()
        state.close()
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    return seconds


def _write(path: str, calls: int) -> None:
    store = Store(path)
    store.open()
    now = time.time_ns() // 1_000_000
    for start in range(0, calls, GROUP):
        group: list[Change] = []
        for number in range(start, min(start + GROUP, calls)):
            row = _row(f"c_{number:06x}", number, now)
            result = CallResult(row.id, row.tool, Status.OK, content="done", delivery=Delivery.SUCCEEDED)
            group += rows.claimed(row, now)
            group += rows.settled(row, result, pack(row.uid, result, (), 0), now + HOUR_MS, now)
        store.commit(group)
    lost = [_row(f"c_lost{number:02x}", None, now) for number in range(INTERRUPTED)]
    store.commit([change for row in lost for change in rows.claimed(row, now)])
    store.close()


def _row(call: str, number: int | None, now: int) -> rows.CallRow:
    place = None if number is None else number.to_bytes(32, "big")
    return rows.CallRow(call, 1000, None, "write_file", place, place, "key", False, 10_000, '{"path":"x"}', now)
