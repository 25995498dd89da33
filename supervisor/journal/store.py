"""The journal's file: an SQLite database in WAL mode, one writer, every commit synced before it counts.

Blocking, and called from one thread at a time by `journal.Journal`; nothing here knows of a loop. Numbers and hashes of
events are given out inside the commit that writes them, so a number that was ever seen is never used again and a
commit that fails leaves no gap. So is the number within its run: see `numbers`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from protocol._events import Event, EventKind
from supervisor.journal import bulk
from supervisor.journal.chain import BrokenChain, Record, link, verify
from supervisor.journal.numbers import KEY, Draft, RunNumbers
from supervisor.journal.schema import NewerJournalError, migrate

_FSYNC_CODES = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)
_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_NUMBER = f"ifnull(CAST(json_extract(data, '$.{KEY}') AS INTEGER), 0)"
_LAST_OF_RUN = f"SELECT {_NUMBER} FROM events WHERE run = ? AND json_valid(data) ORDER BY seq DESC LIMIT 1"  # noqa: S608  # a word of ours
_PRUNED_OF_RUN = "SELECT pruned FROM runs WHERE id = ?"
_KEEP_NUMBERS = f"""UPDATE runs SET pruned = max(pruned, ifnull((SELECT {_NUMBER} FROM events
        WHERE run = runs.id AND seq <= ?1 AND json_valid(data) ORDER BY seq DESC LIMIT 1), 0))
    WHERE settled_ms IS NULL AND id IN (SELECT run FROM events WHERE seq <= ?1)"""  # noqa: S608  # the same
"""Of runs that go on or wait, before events up to a number are taken away."""
_EVENTS = "SELECT seq, at_ms, kind, call, run, uid, data, hash FROM events WHERE seq > ?"
_PRUNE_AT_ONCE = 2_000
_LOG_BYTES = 1_040 * (4_096 + 24)
"""What SQLite's log grows to before it is written over from its start: 1 000 frames, and those of the last commit."""
_PLENTY_OF_LOGS = 16
"""So many times as much must be free for the log to be given its size ahead."""


class StoreError(Exception):
    """The journal cannot be used; the text says which file and why."""


class NoRoomError(StoreError):
    """A commit did not go through and the next may: a full disk, a failed write. Nothing of it was written."""


class BrokenStoreError(StoreError):
    """What was written cannot be known any more: an fsync failed, or the file is damaged. Not to be tried again."""


class Change(NamedTuple):
    """One statement, one event, or both: they are written together or not at all.

    ``over``: a run that has no more events; what is known of it in memory may go once this is written. ``numbered``:
    the statement takes one value more, the number of the last event up to here. ``look``: reads what there is once all
    of its commit has been carried out; in the journal's thread.
    """

    statement: str | None = None
    values: tuple[object, ...] = ()
    event: Draft | None = None
    over: str | None = None
    numbered: bool = False
    look: Callable[[Store], None] | None = None


class Store:
    """One journal file. ``vfs``: the name of an SQLite VFS, for tests of disks that fail."""

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self.path, self._vfs = path, vfs
        self._writer: apsw.Connection
        self._seq, self._hash = 0, b""
        self._runs = RunNumbers(self._last_of_run)
        self.life = 0
        """How many daemons have opened this journal, this one included."""

    def open(self) -> BrokenChain | None:
        """Open or make the file, bring its tables up to date, count this life; where the chain is broken, if it is.

        Raises StoreError; the file is closed then.
        """
        try:
            self._make_file()
            self._writer = apsw.Connection(self.path, vfs=self._vfs)
            with contextlib.ExitStack() as failed:
                failed.callback(self._writer.close)
                broken = self._begin()
                failed.pop_all()
        except (apsw.Error, OSError, NewerJournalError) as error:
            raise StoreError(f"the journal {self.path} cannot be used: {error}") from error
        except (TypeError, ValueError) as error:  # no row where one must be, or NULL in a column that has none
            raise StoreError(f"the journal {self.path} is damaged: {error}") from error
        return broken

    def _begin(self) -> BrokenChain | None:
        self._writer.set_busy_timeout(2_000)
        self._writer.pragma("journal_mode", "wal")
        self._writer.pragma("synchronous", "full")
        migrate(self._writer)
        broken = self._find_end()
        self._writer.execute("UPDATE log SET lives = lives + 1")
        ((self.life,),) = self._writer.execute("SELECT lives FROM log")
        return broken

    def reserve(self) -> None:
        """Give SQLite's log its later size now: a sync that has no new size to record takes half as long (0.25 instead
        of 0.5 ms on ext4). Zeros behind its last frame are no frames. Where room is scarce it grows as it is used: the
        last blocks of a disk are somebody's, and not for later.
        """
        if self._vfs is not None:
            return
        with contextlib.suppress(OSError):
            file = os.open(f"{self.path}-wal", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                size, disk = os.fstat(file).st_size, os.fstatvfs(file)
                plenty = disk.f_bavail * disk.f_frsize >= _PLENTY_OF_LOGS * _LOG_BYTES
                if size < _LOG_BYTES and plenty:
                    os.pwrite(file, bytes(_LOG_BYTES - size), size)
                    os.fdatasync(file)
            finally:
                os.close(file)

    def close(self) -> None:
        """Give the file up."""
        self._writer.close()

    @property
    def seq(self) -> int:
        """The number of the last committed event."""
        return self._seq

    def commit(self, changes: Sequence[Change]) -> int:
        """Write all or nothing, synced; the number of the last event now. Raises NoRoomError, BrokenStoreError."""
        try:
            records = self._numbered([change.event for change in changes if change.event is not None])
            with self._writer:
                bulk.execute(self._writer, self._statements(changes))
                bulk.execute_rows(self._writer, _INSERT_EVENT, records)
                for look in [change.look for change in changes if change.look is not None]:
                    look(self)
        except StoreError:
            self._runs.give_back()
            raise
        except apsw.Error as error:
            self._runs.give_back()
            raise _translated(error, self.path) from error
        if records:
            self._seq, self._hash = records[-1][0], records[-1][-1]
        self._runs.keep(change.over for change in changes if change.over is not None)
        return self._seq

    def _statements(self, changes: Sequence[Change]) -> Iterator[tuple[str, tuple[object, ...]]]:
        seq = self._seq
        for one in changes:
            seq += one.event is not None
            if one.statement is not None:
                yield one.statement, (*one.values, seq) if one.numbered else one.values

    def _numbered(self, drafts: Sequence[Draft]) -> list[tuple[Any, ...]]:
        """The rows of events, in their order: a number each, one within its run, and a hash."""
        last, found = self._hash, []
        for seq, draft in enumerate(drafts, self._seq + 1):
            record = Record(seq, *self._runs.number(draft))
            last = link(last, record)
            found.append((*record, last))
        return found

    def _last_of_run(self, run: str) -> int:
        for query in (_LAST_OF_RUN, _PRUNED_OF_RUN):
            for (number,) in self._writer.execute(query, (run,)):
                return int(number)
        return 0

    def rows(self, query: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a question. Raises StoreError."""
        try:
            yield from self._writer.execute(query, values)
        except apsw.Error as error:
            raise _translated(error, self.path) from error

    def events(
        self, after: int, limit: int, call: str | None = None, uid: int | None = None, run: str | None = None
    ) -> list[Event]:
        """Committed events behind number ``after``, oldest first, at most ``limit``; of one call, run, or uid.

        Raises StoreError.
        """
        query = _EVENTS
        values: list[object] = [after]
        for column, wanted in (("call", call), ("uid", uid), ("run", run)):
            if wanted is not None:
                query += f" AND {column} = ?"  # one of three words of ours
                values.append(wanted)
        return [_event(row) for row in self.rows(f"{query} ORDER BY seq LIMIT {limit:d}", tuple(values))]

    def prune_events(self, before_ms: int, most: int) -> int:
        """Take old events off the front, by age or when there are more than ``most``; how many went this time.

        The chain's anchor moves with them, so that the rest still verifies. Raises StoreError.
        """
        first: int
        ((first,),) = self.rows("SELECT first_seq FROM log")
        oldest_kept = max(first, self._seq - most + 1)
        for (seq,) in self.rows("SELECT seq FROM events WHERE at_ms >= ? ORDER BY seq LIMIT 1", (before_ms,)):
            oldest_kept = max(oldest_kept, seq)
        last_gone = min(oldest_kept - 1, first + _PRUNE_AT_ONCE - 1, self._seq - 1)
        if last_gone < first:
            return 0
        self.commit(
            (
                Change(_KEEP_NUMBERS, (last_gone,)),
                Change(
                    "UPDATE log SET first_seq = ?1 + 1, anchor = (SELECT hash FROM events WHERE seq = ?1)", (last_gone,)
                ),
                Change("DELETE FROM events WHERE seq <= ?", (last_gone,)),
            )
        )
        return last_gone - first + 1

    def _make_file(self) -> None:
        """0600 from its first moment; SQLite gives its side files the mode of the main one."""
        if self._vfs is None:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def _find_end(self) -> BrokenChain | None:
        """Walk the whole chain (3 µs a record) and stand at its end."""
        ((first, anchor),) = self._writer.execute("SELECT first_seq, anchor FROM log")
        self._seq, self._hash = first - 1, anchor

        def walked() -> Iterator[tuple[Record, bytes]]:
            for row in self._writer.execute("SELECT * FROM events ORDER BY seq"):
                self._seq, self._hash = row[0], row[7]
                yield Record(*row[:7]), row[7]

        broken = verify(first - 1, anchor, walked())
        if broken is not None:  # go on behind the last record all the same: a number is not used twice
            ((self._seq, self._hash),) = self._writer.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")
        return broken


def _event(row: tuple[Any, ...]) -> Event:
    """A record that is none any more has something stand in for it: it hides nothing behind it, and ends nobody."""
    seq, *fields, data, digest = row
    try:
        values = (seq, *fields, msgspec.json.decode(data), digest.hex())
        return msgspec.convert(dict(zip(Event.__struct_fields__, values, strict=True)), Event)
    except (TypeError, AttributeError, msgspec.MsgspecError):
        return Event(seq, 0, EventKind.EVENT_UNREADABLE, None, None, None, {}, "")


@contextlib.contextmanager
def undamaged(store: Store) -> Iterator[None]:
    """What is read in the block is what somebody once wrote, or it raises StoreError."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, msgspec.MsgspecError) as error:
        raise StoreError(f"the journal {store.path} is damaged: {error}") from error


def _translated(error: apsw.Error, path: str) -> StoreError:
    code = getattr(error, "extendedresult", 0)
    if code in _FSYNC_CODES or isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return BrokenStoreError(f"the journal {path} can be trusted no longer: {error}")
    return NoRoomError(f"the journal {path} takes nothing: {error}")
