"""What the journal writes of runs and of what their sessions, users and tenants have used, as changes for the store.

open        a run that goes on: when a life finds one, the life before has died under it
suspended   with its ``snapshot``: all that it needs to go on in another life
settled     with its stop record, for good
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from protocol._events import EventKind
from protocol._runs import StopRecord
from supervisor.journal.rows import draft
from supervisor.journal.store import Change, Store

OPEN, WAITING, SETTLED = "open", "suspended", "settled"
_INSERT = "INSERT INTO runs (id, uid, state, spec, opened_ms) VALUES (?, ?, ?, ?, ?)"
_SUSPEND = "UPDATE runs SET state = ?, snapshot = ?, stop = ? WHERE id = ?"
_RESUME = "UPDATE runs SET state = ?, snapshot = NULL, stop = NULL WHERE id = ?"
_SETTLE = "UPDATE runs SET state = ?, snapshot = NULL, stop = ?, settled_ms = ? WHERE id = ?"
_USED = """INSERT INTO accounts (node, used, period, at_ms, seq) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (node) DO UPDATE
    SET used = excluded.used, period = excluded.period, at_ms = excluded.at_ms, seq = excluded.seq"""
_ACCOUNTS = "SELECT node, used, period, seq FROM accounts"
_TO_RECALL = """WHERE node NOT LIKE 'session %' OR node IN (SELECT value FROM json_each(?))
    OR node IN (SELECT node FROM accounts WHERE node LIKE 'session %' ORDER BY at_ms DESC LIMIT ?)"""
_UNUSED = """DELETE FROM accounts WHERE at_ms < ? AND node LIKE 'session %'
    AND node NOT IN (SELECT value FROM json_each(?))"""
_ENCODER = msgspec.json.Encoder()
_STOP = msgspec.json.Decoder(StopRecord)


class RunRow(NamedTuple):
    """A run as the disk has it. ``spec`` and ``snapshot``: plain values."""

    id: str
    uid: int
    state: str
    spec: dict[str, Any]
    snapshot: dict[str, Any] | None
    stop: StopRecord | None
    opened_ms: int


class AccountRow(NamedTuple):
    """What a session, a user or a tenant has used in a period. ``seq``: the last event that is in it; None, for one to
    be written: all that are written before it."""

    node: str
    used: dict[str, int]
    period: int
    seq: int | None = None


class Charge(NamedTuple):
    """By how much an event changed what its run, and all above it, have used."""

    seq: int
    changes: dict[str, int]


def opened(run: str, uid: int, spec: dict[str, Any], now_ms: int, told: dict[str, Any]) -> tuple[Change, ...]:
    """Before its client hears of it."""
    event = draft(EventKind.RUN_ADMITTED, now_ms, None, uid, run, told)
    return (Change(_INSERT, (run, uid, OPEN, _text(spec), now_ms), event),)


def suspended(
    run: str, uid: int, snapshot: dict[str, Any], stop: StopRecord, now_ms: int, told: dict[str, Any]
) -> tuple[Change, ...]:
    """Before anybody hears that it waits."""
    event = draft(EventKind.RUN_SUSPENDED, now_ms, None, uid, run, told)
    return (Change(_SUSPEND, (WAITING, _text(snapshot), _ENCODER.encode(stop), run), event),)


def resumed(run: str, uid: int, now_ms: int, told: dict[str, Any]) -> tuple[Change, ...]:
    """It goes on."""
    event = draft(EventKind.RUN_RESUMED, now_ms, None, uid, run, told)
    return (Change(_RESUME, (OPEN, run), event),)


def settled(run: str, uid: int, stop: StopRecord, now_ms: int, told: dict[str, Any]) -> tuple[Change, ...]:
    """Before anybody hears that it is over."""
    event = draft(EventKind.RUN_SETTLED, now_ms, None, uid, run, told)
    return (Change(_SETTLE, (SETTLED, _ENCODER.encode(stop), now_ms, run), event),)


def used(account: AccountRow, now_ms: int) -> Change:
    """What an account stands at."""
    values = (account.node, _text(account.used), account.period, now_ms)
    return Change(_USED, values, numbered=True) if account.seq is None else Change(_USED, (*values, account.seq))


def look_up(account: str, found: list[AccountRow]) -> Change:
    """Put into ``found`` what the disk has of an account, as it is with the commit in which this is."""

    def look(store: Store) -> None:
        found[:] = _accounts(store.rows(f"{_ACCOUNTS} WHERE node = ?", (account,)))

    return Change(look=look)


def too_old(before_ms: int, in_use: Iterable[str] = ()) -> tuple[Change, ...]:
    """Runs that ended long ago, and sessions that nobody has used for as long, but for those ``in_use``."""
    return (
        Change("DELETE FROM runs WHERE settled_ms < ?", (before_ms,)),
        Change(_UNUSED, (before_ms, _text(list(in_use)))),
    )


def read_runs(store: Store, most: int) -> list[RunRow]:
    """All that did not end, and the newest ``most`` of those that did; oldest first. Raises StoreError."""
    query = """SELECT id, uid, state, spec, snapshot, stop, opened_ms FROM runs
        WHERE settled_ms IS NULL OR id IN
            (SELECT id FROM runs WHERE settled_ms IS NOT NULL ORDER BY settled_ms DESC LIMIT ?)
        ORDER BY settled_ms IS NOT NULL, settled_ms DESC"""
    rows = [
        RunRow(run, uid, state, _values(spec), _values(snapshot), stop and _STOP.decode(stop), opened_ms)
        for run, uid, state, spec, snapshot, stop, opened_ms in store.rows(query, (most,))
    ]
    return rows[::-1]


def read_parts(store: Store) -> dict[str, list[str]]:
    """Of each run that has any, those that are part of it, also of those that ended long ago. Raises StoreError."""
    parts: dict[str, list[str]] = {}
    query = "SELECT id, json_extract(spec, '$.parent') AS parent FROM runs WHERE parent IS NOT NULL"
    for run, parent in store.rows(query):
        parts.setdefault(parent, []).append(run)
    return parts


def read_accounts(store: Store, most_sessions: int = -1, in_use: Iterable[str] = ()) -> list[AccountRow]:
    """Every account; or of sessions those used last, and those ``in_use``. Raises StoreError."""
    return _accounts(store.rows(f"{_ACCOUNTS} {_TO_RECALL}", (_text(list(in_use)), most_sessions)))


def count_accounts(store: Store) -> int:
    """How many there are. Raises StoreError."""
    ((count,),) = store.rows("SELECT count(*) FROM accounts")
    return int(count)


def _accounts(rows: Iterable[tuple[Any, ...]]) -> list[AccountRow]:
    return [AccountRow(node, _values(spent), period, seq) for node, spent, period, seq in rows]


def read_charges(store: Store, run: str) -> list[Charge]:
    """What a run has used, by the log alone: the events that say so. Raises StoreError."""
    rows = store.rows("SELECT seq, data FROM events WHERE run = ? ORDER BY seq", (run,))
    told = [Charge(seq, msgspec.json.decode(data).get("charge") or {}) for seq, data in rows]
    return [charge for charge in told if charge.changes]


def read_limits(store: Store, run: str) -> dict[str, int]:
    """What a run was given, by the log; empty: its first event is not there any more. Raises StoreError."""
    query = "SELECT data FROM events WHERE run = ? AND kind = ?"
    for (data,) in store.rows(query, (run, EventKind.RUN_ADMITTED.value)):
        limits: dict[str, int] = msgspec.json.decode(data)["limits"]
        return limits
    return {}


def suspended_at(store: Store, run: str) -> int:
    """The number of the event with which a run was suspended last; 0: none is there. Raises StoreError."""
    query = "SELECT max(seq) FROM events WHERE run = ? AND kind = ?"
    ((seq,),) = store.rows(query, (run, EventKind.RUN_SUSPENDED.value))
    return int(seq or 0)


def total(charges: Iterable[Charge], after: int = 0) -> dict[str, int]:
    """What events behind a number change together."""
    changed: dict[str, int] = {}
    for charge in charges:
        if charge.seq > after:
            for name, change in charge.changes.items():
                changed[name] = changed.get(name, 0) + change
    return changed


def _text(value: object) -> str:
    return _ENCODER.encode(value).decode()


def _values(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
