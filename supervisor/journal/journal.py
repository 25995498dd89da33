"""The journal: what must survive this daemon, and the one stream of events that doors may show.

Owns when things are written (group commit), what happens when the disk refuses, and who is told. Leaves the file to
`store`, what is written to `rows`, what the next life makes of it to `recovery`.

Rules
1. One log, in the order of the appends. Whatever is appended with ``then`` is synced at once, and ``then(durable)`` is
   called when it is; everything else goes with the next group, at most ``_LINGER_S`` later.
2. A commit that fails for want of room writes nothing of its group: every ``then`` hears False, what is to be kept
   waits and is tried again, what is not (an intent whose call will not run) is dropped.
3. After an fsync that failed nothing is written any more: what the disk holds is not known.
4. When a commit takes longer than ``_PATIENCE_S``, who waits with a result hears False: a hung disk does not hold up
   the news that a call is over. Who waits with an intent goes on waiting; the call's deadline bounds that.
5. While commits fail (``refuses``) no new call is taken. It ends by itself with the first that goes through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import structlog
import trio

from protocol._events import Event, EventKind
from supervisor.clock import wall_ms
from supervisor.journal import rows
from supervisor.journal.store import BrokenStoreError, Change, Store, StoreError

_LOG = structlog.get_logger("deadlined.journal")
_LINGER_S = 0.02
_PATIENCE_S = 1.0
_RETRY_S = 0.5
_MOST_WAITING = 20_000
Then = Callable[[bool], None]


class Entry(NamedTuple):
    """What is written together. ``keep``: it must be written some time even if not now."""

    changes: tuple[Change, ...]
    then: Then | None = None
    keep: bool = True


class Journal:
    """One per daemon; `run` must be running for anything to be written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = trio.CapacityLimiter(1)
        """SQLite is asked by one thread at a time."""
        self._pending: list[Entry] = []
        self._lost = 0
        self._nap: trio.CancelScope | None = None
        self._due = math.inf
        self._moved = trio.Event()
        self._stalled = self._broken = False
        self.trouble: str | None = None
        """What is wrong with the disk at the moment, for people."""
        self.alarm: str | None = None
        """What was found wrong in it at the start: somebody must look."""

    # ------------------------------------------------------------ writing

    def append(self, changes: tuple[Change, ...], then: Then | None = None, keep: bool = True) -> None:
        """Write, in order; with ``then`` at once (rules 1, 2), which may be called before this returns (rule 4)."""
        if self._stalled and keep and then is not None:
            self.append(changes)
            then(False)
            return
        self._pending.append(Entry(changes, then, keep))
        if then is not None:
            self._wake(-math.inf)
        elif len(self._pending) == 1:
            self._wake(trio.current_time() + (_LINGER_S if self.trouble is None else _RETRY_S))
        if len(self._pending) > _MOST_WAITING:
            self._drop_one()

    def note(
        self, kind: EventKind, call: str | None = None, uid: int | None = None, run: str | None = None, **data: Any
    ) -> None:
        """An event that goes with the next group."""
        self.append((Change(event=rows.draft(kind, wall_ms(), call, uid, run, data)),))

    def _wake(self, at: float) -> None:
        if at < self._due:
            self._due = at
            if self._nap is not None:
                self._nap.deadline = at

    def _drop_one(self) -> None:
        """The disk has refused for long: the oldest event that nobody waits for is counted instead of kept."""
        for index, entry in enumerate(self._pending):
            if entry.then is None and all(change.statement is None for change in entry.changes):
                del self._pending[index]
                self._lost += 1
                return

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit what is appended until cancelled. `close` writes the rest."""
        task_status.started()
        while True:
            with trio.CancelScope() as self._nap:
                self._nap.deadline = self._due
                await trio.sleep_forever()
            self._due = math.inf
            await self.commit()

    async def commit(self) -> None:
        """Write what has been appended so far, and tell who waits for it."""
        batch, self._pending = self._pending, []
        if not batch:
            return
        if self._broken:
            self._fail(batch)
            return
        if self._lost:
            data = {"count": self._lost}
            batch.insert(
                0, Entry((Change(event=rows.draft(EventKind.EVENTS_LOST, wall_ms(), None, None, None, data)),))
            )
        async with trio.open_nursery() as nursery:
            done = trio.Event()
            nursery.start_soon(self._write, batch, done)
            with trio.move_on_after(_PATIENCE_S):
                await done.wait()
            if not done.is_set():
                batch[:] = self._lose_patience(batch)

    async def _write(self, batch: list[Entry], done: trio.Event) -> None:
        changes = [change for entry in batch for change in entry.changes]
        before = self._store.seq
        try:
            # Abandoned when the daemon stops over a hung disk; `close` then waits for the thread, as long as it may.
            seq = await trio.to_thread.run_sync(
                self._store.commit, changes, limiter=self._thread, abandon_on_cancel=True
            )
        except StoreError as error:
            self._refused(error)
            self._fail(batch)
        else:
            self._written(batch, seq > before)
        done.set()

    def _written(self, batch: list[Entry], moved: bool) -> None:
        self._lost, self._stalled = 0, False
        if self.trouble is not None:
            _LOG.info("journal_writes_again")
            self.trouble = None
        for entry in batch:
            if entry.then is not None:
                entry.then(True)
        if moved:
            self._moved.set()
            self._moved = trio.Event()

    def _refused(self, error: StoreError) -> None:
        self._broken = isinstance(error, BrokenStoreError)
        if self.trouble is None or self._broken:
            _LOG.error("journal_refuses", error=str(error))
        self.trouble = str(error)

    def _fail(self, batch: list[Entry]) -> None:
        """Rules 2 and 3. What is appended by those who hear of it comes behind what was there before."""
        again = [Entry(entry.changes) for entry in batch if entry.keep and not self._broken]
        self._pending = again + self._pending
        for entry in batch:
            if entry.then is not None:
                entry.then(False)
        if self._pending and not self._broken:
            self._wake(trio.current_time() + _RETRY_S)

    def _lose_patience(self, batch: list[Entry]) -> list[Entry]:
        """Rule 4: tell that nothing is certain. The commit goes on; the batch as it is then: who waits for it still."""
        self._stalled = True
        self.trouble = f"the journal {self._store.path} does not answer"
        _LOG.error("journal_stalls", waited_s=_PATIENCE_S)
        results = [entry for entry in batch if entry.keep and entry.then is not None]
        told = [Entry(entry.changes) if entry.keep else entry for entry in batch]
        for entry in results:
            assert entry.then is not None
            entry.then(False)
        return told

    @property
    def refuses(self) -> bool:
        """Whether what is appended now will not be written for the moment."""
        return self.trouble is not None and not self._stalled

    # ------------------------------------------------------------ reading and keeping house

    @property
    def seq(self) -> int:
        """The number of the last committed event."""
        return self._store.seq

    async def events(
        self, after: int, limit: int, call: str | None = None, uid: int | None = None, run: str | None = None
    ) -> list[Event]:
        """Committed events; see `Store.events`. Raises StoreError."""
        return await trio.to_thread.run_sync(self._store.events, after, limit, call, uid, run, limiter=self._thread)

    async def wait_moved(self, after: int) -> None:
        """Wait until an event behind number ``after`` is committed."""
        while self._store.seq <= after:
            await self._moved.wait()

    async def prune(self, event_age_ms: int, events: int, row_age_ms: int) -> None:
        """Take away what need not be kept any longer; a little at a time, nobody waits long for the file."""
        if self.trouble is not None:
            return
        now = wall_ms()
        self.append(rows.too_old(now - row_age_ms))
        try:
            while await trio.to_thread.run_sync(
                self._store.prune_events, now - event_age_ms, events, limiter=self._thread
            ):
                await trio.sleep(_LINGER_S)
        except StoreError as error:
            self._refused(error)

    async def close(self) -> None:
        """Write what is left and give the file up. Bounded: what a hung or full disk does not take is lost."""
        with trio.move_on_after(2 * _PATIENCE_S, shield=True):
            await self.commit()
            await trio.to_thread.run_sync(self._store.close, limiter=self._thread, abandon_on_cancel=True)
