"""What the journal writes of one call, as changes for the store: its row, and the events that go with it.

planned   a detached call, before its submitter hears of it
claimed   a call with a side effect, before its frame leaves: from here on it may have run
sent, accepted   on their way; may be lost with a daemon that is killed, so nothing is concluded from their absence
settled   the one result, whatever it is; the row's state is then its delivery
"""

from __future__ import annotations

from typing import Any

import msgspec

from protocol._events import EventKind
from protocol._outcomes import CallResult
from supervisor.journal.numbers import Draft
from supervisor.journal.results import KeptCall, digest
from supervisor.journal.schema import OPEN_EFFECT
from supervisor.journal.store import Change

PLANNED, CLAIMED, SENT, ACCEPTED = UNSETTLED = ("planned", "claimed", "sent", "accepted")
STILL_OPEN = f"(result IS NULL AND state IN {UNSETTLED})"
"""In SQL, word for word that of the index `calls_open`. Python writes a tuple of words as SQL does."""
_ARGUMENTS_KEPT = 65_536
"""Characters of the arguments of an open effect that are kept for as long as it is open."""
_encode = msgspec.json.Encoder().encode
_TEXT_BYTES = 2_000
"""Bound on a free text in an event: the log is no place for a tool's output."""

_COLUMNS = "id, uid, run, tool, place, said, key, read_only, deadline_ms, arguments, state, submitted_ms, call_fp"
_PLAN = f"""INSERT INTO calls ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING"""  # noqa: S608  # our own column names
_CLAIM = _PLAN.replace("DO NOTHING", "DO UPDATE SET state = excluded.state")
_FREE_PLACE = "UPDATE calls SET place = NULL WHERE place = ? AND id != ?"
_ADVANCE = "UPDATE calls SET state = ? WHERE id = ? AND result IS NULL"
_SETTLE = f"""INSERT INTO calls ({_COLUMNS}, expires_ms, result, files, output_bytes)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, expires_ms = excluded.expires_ms,
    result = excluded.result, files = excluded.files, output_bytes = excluded.output_bytes"""  # noqa: S608  # the same

_FORGET = f"DELETE FROM calls WHERE id = ? AND place IS NULL AND NOT {OPEN_EFFECT}"  # noqa: S608  # ours
_STRIP = f"""UPDATE calls SET result = NULL, files = NULL, arguments = CASE
    WHEN {OPEN_EFFECT} AND length(arguments) <= {_ARGUMENTS_KEPT} THEN arguments END WHERE id = ?"""  # noqa: S608  # ours
_TOO_OLD = f"DELETE FROM calls WHERE submitted_ms < ? AND NOT {STILL_OPEN} AND NOT {OPEN_EFFECT}"  # noqa: S608  # ours


class CallRow(msgspec.Struct, gc=False):
    """What identifies a call for good. ``place``: digest of uid, run and delivery key; ``said``: of tool and arguments.
    ``arguments``: their text, of calls that may change something. ``submitted_ms``: wall clock. ``read_only``: it has
    no effect of its own. ``call_fp``: what it does, in the eyes of its run."""

    id: str
    uid: int
    run: str | None
    tool: str
    place: bytes | None
    said: bytes | None
    key: str
    read_only: bool
    deadline_ms: int
    arguments: str | None
    submitted_ms: int
    call_fp: str | None = None


def planned(row: CallRow, now_ms: int) -> tuple[Change, ...]:
    """Before the submitter of a detached call hears of it."""
    return _entered(row, _PLAN, PLANNED, EventKind.CALL_PLANNED, now_ms)


def claimed(row: CallRow, now_ms: int) -> tuple[Change, ...]:
    """Before the frame of a call with a side effect leaves."""
    return _entered(row, _CLAIM, CLAIMED, EventKind.CALL_CLAIMED, now_ms)


def advanced(row: CallRow, state: str, now_ms: int, **data: Any) -> tuple[Change, ...]:
    """A claimed call was sent, or accepted by its worker."""
    kind = EventKind.CALL_SENT if state == SENT else EventKind.CALL_ACCEPTED
    return (Change(_ADVANCE, (state, row.id), _of(row, kind, now_ms, data)),)


def settled(
    row: CallRow,
    result: CallResult,
    kept: KeptCall,
    expires_ms: int,
    now_ms: int,
    charge: dict[str, int] | None = None,
) -> tuple[Change, ...]:
    """The one terminal record. The event holds a digest of the result (`results.digest`), to make it tamper-evident."""
    data: dict[str, Any] = {
        "tool": row.tool,
        "status": result.status,
        "reason": result.reason,
        "delivery": result.delivery,
        "duration_ms": result.timing.duration_ms,
        "result_sha256": digest(result, kept),
    }
    if result.kill is not None:
        data["kill"] = result.kill
    if any(notice.detector == "late_result" for notice in result.notices):
        data["late_result"] = True
    if charge:
        data["charge"] = charge
    if result.left_processes:
        data["left_processes"] = result.left_processes
    values = (kept.packed, _json(kept.files), kept.output_bytes)
    change = Change(
        _SETTLE,
        (*_values(row, str(result.delivery)), expires_ms, *values),
        _of(row, EventKind.CALL_ENDED, now_ms, data),
    )
    return (*_free_place(row), change)


def amended(kept: KeptCall) -> tuple[Change, ...]:
    """A result that was told without the disk: what the disk takes later says so too. The event stays the one it is."""
    return (Change("UPDATE calls SET result = ? WHERE id = ?", (kept.packed, kept.id)),)


def refused(
    call: str, uid: int, run: str | None, tool: str, reason: str, text: str, now_ms: int, decision: str | None = None
) -> Change:
    """A call that was refused before anything of it was recorded."""
    data = {"tool": tool[:200], "reason": reason, "text": text}
    if decision is not None:
        data["decision"] = decision
    return Change(event=draft(EventKind.CALL_REFUSED, now_ms, call, uid, run, data))


def forgotten(call: str) -> tuple[Change, ...]:
    """A result's time is up. The row stays only where its delivery key must be remembered, until `too_old` takes it,
    and where nobody knows yet what became of the call."""
    return (Change(_FORGET, (call,)), Change(_STRIP, (call,)))


def too_old(before_ms: int) -> tuple[Change, ...]:
    """Rows whose delivery key need not be remembered any more. By the index of their age: there may be many rows."""
    return (Change(_TOO_OLD, (before_ms,)),)


def draft(kind: str, now_ms: int, call: str | None, uid: int | None, run: str | None, data: dict[str, Any]) -> Draft:
    """An event about to be numbered. Long texts are cut, and half surrogate pairs made sayable."""
    return Draft(now_ms, kind, call, run, uid, _json(data))


def _json(value: Any) -> str:
    try:
        text = _encode(value).decode()
    except UnicodeEncodeError:  # a name that came from the system, or from a tool
        return msgspec.json.encode(_sayable(msgspec.to_builtins(value))).decode()
    return text if len(text) <= _TEXT_BYTES else msgspec.json.encode(_sayable(msgspec.to_builtins(value))).decode()


def _sayable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()[:_TEXT_BYTES]
        case dict():
            return {_sayable(name): _sayable(one) for name, one in value.items()}
        case list() | tuple():
            return [_sayable(one) for one in value]
        case _:
            return value


def _entered(row: CallRow, insert: str, state: str, kind: EventKind, now_ms: int) -> tuple[Change, ...]:
    data = {"tool": row.tool, "deadline_ms": row.deadline_ms}
    return (*_free_place(row), Change(insert, _values(row, state), _of(row, kind, now_ms, data)))


def _free_place(row: CallRow) -> tuple[Change, ...]:
    """An earlier call under the same delivery key came to nothing: this one stands for the key now."""
    return () if row.place is None else (Change(_FREE_PLACE, (row.place, row.id)),)


def _values(row: CallRow, state: str) -> tuple[object, ...]:
    place = (row.place, row.said, row.key, row.read_only, row.deadline_ms, row.arguments)
    return (row.id, row.uid, row.run, row.tool, *place, state, row.submitted_ms, row.call_fp)


def _of(row: CallRow, kind: EventKind, now_ms: int, data: dict[str, Any]) -> Draft:
    return draft(kind, now_ms, row.id, row.uid, row.run, data)
