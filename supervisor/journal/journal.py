"""The journal: what must survive this daemon, and the one stream of events that doors may show.

Owns when things are written (group commit), what happens when the disk refuses, and who is told. Leaves the file to
`store`, what is written to `rows`, what the next life makes of it to `recovery`.

Rules
1. One log, in the order of the appends. Whatever is appended with ``then`` is synced at once, with all that waits at
   that moment, and ``then(durable)`` is called when it is; everything else goes with the next group, at most
   ``_LINGER_S`` later.
2. A commit that fails for want of room writes nothing of its group: every ``then`` hears False, what is to be kept
   waits and is tried again, what is not (an intent whose call will not run) is dropped.
3. After an fsync that failed nothing is written any more: what the disk holds is not known.
4. When a commit takes longer than ``_PATIENCE_S``, who waits with a result hears False: a hung disk does not hold up
   the news that a call is over. Who waits with an intent goes on waiting; the call's deadline bounds that.
5. While commits fail (``refuses``) no new call is taken. It ends by itself with the first that goes through.
6. What is appended ``together`` is one entry: all of it is on the disk, or nothing, and who waits for any part of it
   hears of the whole.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog
import trio

from protocol._events import Event, EventKind
from supervisor.clock import wall_ms
from supervisor.core.redaction import Redaction
from supervisor.journal import rows
from supervisor.journal.commit_thread import CommitThread
from supervisor.journal.store import BrokenStoreError, Change, Store, StoreError

_LOG = structlog.get_logger("deadlined.journal")
_LINGER_S = 0.02
_PATIENCE_S = 1.0
_RETRY_S = 0.5
_RESERVE_AFTER_S = 1.0
"""A daemon that starts has better things to do with the disk."""
_MOST_WAITING = 20_000
Then = Callable[[bool], None]
T = TypeVar("T")


class Entry:
    """What is written together. ``then``: who still waits for it; ``keep``: it must be written some time even if not
    now."""

    __slots__ = ("changes", "keep", "then")

    def __init__(self, changes: tuple[Change, ...], then: Then | None = None, keep: bool = True) -> None:
        self.changes, self.then, self.keep = changes, then, keep

    def tell(self, durable: bool) -> None:
        """Whoever waits hears it, once."""
        then, self.then = self.then, None
        if then is not None:
            then(durable)


def joined(entries: list[Entry]) -> Entry:
    """Several as one (rule 6)."""
    waiting = [entry for entry in entries if entry.then is not None]

    def tell_all(durable: bool) -> None:
        for entry in waiting:
            entry.tell(durable)

    changes = tuple(change for entry in entries for change in entry.changes)
    return Entry(changes, tell_all if waiting else None, any(entry.keep for entry in entries))


class Group:
    """What one commit writes. ``lost``: how many dropped events it tells of; ``error``: why it is not written; ``seq``:
    the number of the last event then."""

    __slots__ = ("entries", "error", "lost", "seq")

    def __init__(self, entries: list[Entry], lost: int) -> None:
        self.entries, self.lost = entries, lost
        self.error: StoreError | None = StoreError("the commit did not end")
        self.seq = 0


class Journal:
    """One per daemon; `run` must be running for anything to be written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = CommitThread(self._write)
        self._pending: list[Entry] = []
        self._joining: list[Entry] | None = None
        """What a block of `together` has appended so far."""
        self._taking = threading.Lock()
        """Held where `_pending` is changed: the thread takes what is in it when it gets to it, and not what was in it
        when it was rung."""
        self._group: Group | None = None
        """What is being written, or has been, and those who wait have not been told."""
        self._writing = False
        self._began = 0.0
        self._lost = 0
        self._nap: trio.CancelScope | None = None
        self._due = math.inf
        self._seq, self._moved = store.seq, trio.Event()
        self._stalled = self._broken = False
        self.redaction = Redaction()
        """Takes out of events what nobody may read."""
        self.trouble: str | None = None
        """What is wrong with the disk at the moment, for people."""
        self.alarm: str | None = None
        """What was found wrong in it at the start: somebody must look."""

    # ------------------------------------------------------------ writing

    def append(self, changes: tuple[Change, ...], then: Then | None = None, keep: bool = True) -> None:
        """Write, in order; with ``then`` at once (rules 1, 2), which may be called before this returns (rule 4)."""
        if self._joining is not None:
            self._joining.append(Entry(changes, then, keep))
            return
        if self._stalled and keep and then is not None:
            self.append(changes)
            then(False)
            return
        if self.redaction:
            changes = tuple(self._redacted(change) for change in changes)
        with self._taking:
            self._pending.append(Entry(changes, then, keep))
            waiting = len(self._pending)
        if waiting > _MOST_WAITING:
            self._drop_one()
        if self._writing or not self._thread.running:
            return
        if then is not None:
            self._start()
        elif waiting == 1:
            self._wake(self._later())

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is appended in the block is one entry (rule 6). A block inside of another is part of it."""
        if self._joining is not None:
            yield
            return
        entries: list[Entry] = []
        self._joining = entries
        try:
            yield
        finally:  # whatever went wrong: what has been said has happened
            self._joining = None
            if entries:
                one = joined(entries)
                self.append(one.changes, one.then, one.keep)

    def _redacted(self, change: Change) -> Change:
        event = change.event
        if event is None:
            return change
        return change._replace(event=event._replace(data=self.redaction.json(event.data)))

    def note(
        self, kind: EventKind, call: str | None = None, uid: int | None = None, run: str | None = None, **data: Any
    ) -> None:
        """An event that goes with the next group."""
        self.append((Change(None, (), rows.draft(kind, wall_ms(), call, uid, run, data)),))

    def run_over(self, run: str) -> None:
        """There are no more events of this run: behind those appended so far, its counter need not be kept at hand."""
        self.append((Change(over=run),))

    def _drop_one(self) -> None:
        """The disk has refused for long: the oldest event that nobody waits for is counted instead of kept."""
        with self._taking:
            for index, entry in enumerate(self._pending):
                if entry.then is None and all(change.statement is None for change in entry.changes):
                    del self._pending[index]
                    self._lost += any(change.event is not None for change in entry.changes)
                    return

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit what is appended until cancelled. `close` writes the rest."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            await nursery.start(self._thread.run, self._see_written)
            self._go_on()
            task_status.started()
            await trio.sleep(_RESERVE_AFTER_S)
            await self._thread.ask(self._store.reserve)

    def _go_on(self) -> None:
        """After a commit: the next one, now or later."""
        if any(entry.then is not None for entry in self._pending):
            self._start()
        elif self._pending:
            self._wake(self._later())

    def _later(self) -> float:
        return trio.current_time() + (_LINGER_S if self.trouble is None else _RETRY_S)

    def _start(self) -> None:
        self._writing, self._began = True, trio.current_time()
        self._wake(self._began + _PATIENCE_S)
        self._thread.ring()

    # ------------------------------------------------------------ time

    def _wake(self, at: float) -> None:
        if at < self._due:
            self._due = at
            if self._nap is not None:
                self._nap.deadline = at

    async def _keep_time(self) -> None:
        while True:
            with trio.CancelScope() as self._nap:
                self._nap.deadline = self._due
                await trio.sleep_forever()
            self._due = math.inf
            if not self._writing:
                if self._pending:
                    self._start()
            elif not self._stalled:
                self._watch()

    def _watch(self) -> None:
        """One timer for many commits: it is set again only where it finds one that has not taken too long yet."""
        if trio.current_time() - self._began >= _PATIENCE_S:
            self._lose_patience()
        else:
            self._wake(self._began + _PATIENCE_S)

    def _lose_patience(self) -> None:
        """Rule 4: tell that nothing is certain. The commit goes on."""
        self._stalled = True
        self.trouble = f"the journal {self._store.path} does not answer"
        _LOG.error("journal_stalls", waited_s=_PATIENCE_S)
        with self._taking:
            entries = [*(self._group.entries if self._group else ()), *self._pending]
        for entry in entries:
            if entry.keep:
                entry.tell(False)

    # ------------------------------------------------------------ a commit

    def _write(self) -> None:
        """In the thread: commit what has been appended so far. What becomes of it is seen to in the loop."""
        with self._taking:
            group = self._group = Group(self._pending, self._lost)
            self._pending, self._lost = [], 0
        changes = [change for entry in group.entries for change in entry.changes]
        if group.lost:
            changes.insert(0, _lost_event(group.lost))
        try:
            if self._broken:
                raise BrokenStoreError(self.trouble or "")
            group.seq, group.error = self._store.commit(changes), None
        except StoreError as error:
            group.error = error

    def _see_written(self) -> None:
        self._see_to_group()
        self._go_on()

    def _see_to_group(self) -> None:
        """Rules 2 and 3. What those who hear of it append goes into one group: none is begun until all have heard."""
        group, self._group = self._group, None
        assert group is not None
        self._stalled = False
        if group.error is None:
            self._written(group)
        else:
            self._refused(group.error)
            self._fail(group)
        self._writing = False

    def _written(self, group: Group) -> None:
        if self.trouble is not None:
            _LOG.info("journal_writes_again")
            self.trouble = None
        for entry in group.entries:
            entry.tell(True)
        if group.seq > self._seq:
            self._seq = group.seq
            self._moved.set()
            self._moved = trio.Event()

    def _refused(self, error: StoreError) -> None:
        self._broken = self._broken or isinstance(error, BrokenStoreError)
        if self.trouble is None or self._broken:
            _LOG.error("journal_refuses", error=str(error))
        self.trouble = str(error)

    def _fail(self, group: Group) -> None:
        """What is appended by those who hear of it comes behind what was there before."""
        with self._taking:
            self._lost += group.lost
            again = [Entry(entry.changes) for entry in group.entries if entry.keep and not self._broken]
            self._pending = again + self._pending
        for entry in group.entries:
            entry.tell(False)

    @property
    def refuses(self) -> bool:
        """Whether what is appended now will not be written for the moment."""
        return self.trouble is not None and not self._stalled

    # ------------------------------------------------------------ reading and keeping house

    @property
    def seq(self) -> int:
        """The number of the last event whose commit was seen to."""
        return self._seq

    async def events(
        self, after: int, limit: int, call: str | None = None, uid: int | None = None, run: str | None = None
    ) -> list[Event]:
        """Committed events; see `Store.events`. Raises StoreError."""
        return await self._thread.ask(self._store.events, after, limit, call, uid, run)

    async def read(self, question: Callable[[Store, str], T], of: str) -> T:
        """What ``question(store, of)`` finds, asked in the journal's own thread. Raises StoreError."""
        return await self._thread.ask(question, self._store, of)

    async def wait_moved(self, after: int) -> None:
        """Wait until an event behind number ``after`` is committed."""
        while self._seq <= after:
            await self._moved.wait()

    async def prune(self, event_age_ms: int, events: int, row_age_ms: int) -> None:
        """Take away what need not be kept any longer; a little at a time, nobody waits long for the file."""
        if self.trouble is not None:
            return
        now = wall_ms()
        self.append(rows.too_old(now - row_age_ms))
        try:
            while await self._thread.ask(self._store.prune_events, now - event_age_ms, events):
                await trio.sleep(_LINGER_S)
        except StoreError as error:
            self._refused(error)

    async def close(self) -> None:
        """Write what is left and give the file up. Bounded: what a hung or full disk does not take is lost."""
        with trio.move_on_after(2 * _PATIENCE_S, shield=True):
            await self._thread.wait_turn()
            if self._group is not None:  # nobody was there any more to see the end of it
                self._see_to_group()
            while self._pending:
                await self._thread.ask(self._write)
                self._see_to_group()
                if self.trouble is not None:
                    break
            await self._thread.ask(self._store.close)


def _lost_event(count: int) -> Change:
    return Change(event=rows.draft(EventKind.EVENTS_LOST, wall_ms(), None, None, None, {"count": count}))
