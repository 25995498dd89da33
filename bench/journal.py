"""The journal on its own, in this process: from the append of what a call with a side effect must have on the disk to
the news that it has; beside the same commit without loop and thread, and beside the sync alone.

All three take turns on the same disk, so that the ratio is the hand-over's and SQLite's.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from bench._plan import Plan
from bench._report import Row, Section
from protocol._outcomes import CallResult, Delivery, Status
from supervisor.journal import rows
from supervisor.journal.journal import Journal
from supervisor.journal.results import pack
from supervisor.journal.store import Change, Store

_COMMIT_BYTES = 7 * 4096
"""What a commit of one call adds to SQLite's log."""
_IN_FLIGHT = 16
_UNTIL_MS = 1 << 50


def run(plan: Plan) -> Section:
    """See the module."""
    with tempfile.TemporaryDirectory(prefix="deadlined-bench-") as directory:
        found = trio.run(_measured, directory, plan)
    return Section(
        "the journal: from the append to the news that it is on the disk",
        [
            Row("one call at a time", "µs", found.one, found.store),
            Row(f"{_IN_FLIGHT} at once, the last of them", "µs", found.many, found.store),
            Row("the commit without loop and thread", "µs", found.store, found.sync),
            Row("floor: write the pages, sync", "µs", found.sync),
        ],
        [f"an append is what one call claims, or settles; floor: {_COMMIT_BYTES >> 10} KiB, no new size"],
    )


class Samples:
    """Rounds of microseconds."""

    def __init__(self) -> None:
        self.one: list[list[float]] = []
        self.many: list[list[float]] = []
        self.store: list[list[float]] = []
        self.sync: list[list[float]] = []


class Calls:
    """Calls of which there is always another one: what each claims, then what it settles."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0
        self._going: list[rows.CallRow] = []

    def next_changes(self) -> tuple[Change, ...]:
        """A claim and a result in turn."""
        if self._going:
            row = self._going.pop()
            result = CallResult(row.id, row.tool, Status.OK, content="x" * 200, delivery=Delivery.SUCCEEDED)
            return rows.settled(row, result, pack(row.uid, result, (), 0), _UNTIL_MS, 2)
        self._count += 1
        call = f"c_{self._name}{self._count:08}"
        row = rows.CallRow(call, 1000, None, "tool", os.urandom(32), b"said" * 8, call, False, 1_000, "{}", 1)
        self._going.append(row)
        return rows.claimed(row, 1)


async def _measured(directory: str, plan: Plan) -> Samples:
    """``one`` and ``many`` through a journal that runs, ``store`` into a file of its own."""
    samples, count = Samples(), plan.of(100, 30)
    bare, store = _opened(directory, "bare"), _opened(directory, "journal")
    journal = Journal(store)
    claims, others, singles = Calls("a"), Calls("b"), Calls("c")
    with _open_floor(directory) as sync:
        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run)
            for _ in range(plan.of(8, 3)):
                samples.one.append([await _told(journal, claims, 1) for _ in range(count)])
                samples.store.append([_micros(lambda: bare.commit(singles.next_changes())) for _ in range(count)])
                samples.sync.append([_micros(sync) for _ in range(count)])
                samples.many.append([await _told(journal, others, _IN_FLIGHT) for _ in range(count)])
            nursery.cancel_scope.cancel()
    await journal.close()
    bare.close()
    return samples


def _opened(directory: str, name: str) -> Store:
    store = Store(os.path.join(directory, name))
    store.open()
    store.reserve()
    return store


async def _told(journal: Journal, calls: Calls, count: int) -> float:
    """From the first of so many appends to the news of the last."""
    batch = [calls.next_changes() for _ in range(count)]
    all_told, missing = trio.Event(), count
    ended = 0

    def then(_durable: bool) -> None:
        nonlocal missing, ended
        missing -= 1
        if missing == 0:
            ended = time.monotonic_ns()
            all_told.set()

    began = time.monotonic_ns()
    for changes in batch:
        journal.append(changes, then)
    await all_told.wait()
    return (ended - began) / 1e3


@contextmanager
def _open_floor(directory: str) -> Iterator[Callable[[], None]]:
    """Writes so much behind what it wrote last, into a file that has its size, and syncs."""
    size, page, at = 200 * _COMMIT_BYTES, b"x" * _COMMIT_BYTES, 0
    with open(os.path.join(directory, "floor"), "wb", buffering=0) as file:
        file.write(bytes(size))
        os.fsync(file.fileno())

        def write() -> None:
            nonlocal at
            os.pwrite(file.fileno(), page, at)
            os.fdatasync(file.fileno())
            at = (at + _COMMIT_BYTES) % size

        yield write


def _micros(act: Callable[[], object]) -> float:
    began = time.monotonic_ns()
    act()
    return (time.monotonic_ns() - began) / 1e3
