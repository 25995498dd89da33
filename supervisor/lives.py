"""What the journal holds of this life's workers: enough for the next one to find those that outlived it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from protocol._events import EventKind
from supervisor.clock import wall_ms
from supervisor.containment.strays import Stray, boot_id, start_ticks
from supervisor.containment.workers import Worker
from supervisor.journal import rows
from supervisor.journal.journal import Journal
from supervisor.journal.numbers import Draft
from supervisor.journal.store import Change, Store

_INSERT = "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM workers WHERE life = ? AND number = ?"
_EARLIER = "SELECT pid, start_ticks, boot_id, groups FROM workers WHERE life < ?"


class LifeRecords:
    """One per daemon."""

    def __init__(self, journal: Journal, life: int) -> None:
        self._journal, self._life = journal, life
        self._boot_id = boot_id()

    def spawned(self, worker: Worker) -> None:
        """A worker has a process."""
        groups = json.dumps(worker.group.directories)
        values = (self._life, worker.number, worker.pid, start_ticks(worker.pid), self._boot_id, groups)
        event = self._event(EventKind.WORKER_SPAWNED, worker, pid=worker.pid)
        self._journal.append((Change(_INSERT, values, event),))

    def gone(self, worker: Worker, cause: str) -> None:
        """The kernel has confirmed its end."""
        event = self._event(EventKind.WORKER_GONE, worker, cause=cause, calls=worker.calls_served)
        self._journal.append((Change(_DELETE, (self._life, worker.number), event),))

    def _event(self, kind: EventKind, worker: Worker, **data: object) -> Draft:
        told = {"worker": worker.number, "flavour": worker.flavour, **data}
        return rows.draft(kind, wall_ms(), None, None, None, told)


def strays_of(store: Store) -> Iterator[Stray]:
    """Workers of earlier lives whose end nobody recorded. Raises StoreError."""
    for pid, ticks, boot, groups in store.rows(_EARLIER, (store.life,)):
        yield Stray(pid, ticks, boot, tuple(json.loads(groups)))


def forget_strays(store: Store) -> None:
    """They have been seen to. Raises StoreError."""
    store.commit([Change("DELETE FROM workers WHERE life < ?", (store.life,))])
