"""What the journal knows of open effects: calls that may have changed something, whose outcome nobody saw and nobody
has found out since. Their rows are those of their calls (`rows`); here is which are open, and how one is closed.

An open one keeps its row for good, and its arguments where they are not large: whoever is to find out needs both.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol._events import EventKind
from supervisor.journal.rows import draft
from supervisor.journal.schema import OPEN_EFFECT
from supervisor.journal.store import Change, Store

_OPEN = f"""SELECT id, tool, run, uid, key, submitted_ms, arguments, place, call_fp FROM calls
    WHERE {OPEN_EFFECT} ORDER BY submitted_ms DESC LIMIT ?"""  # noqa: S608  # our own words
_CLOSE = "UPDATE calls SET closed = ?, closed_ms = ?, closed_by = ? WHERE id = ? AND closed_ms IS NULL"
_FREE = "UPDATE calls SET place = NULL WHERE id = ?"

DONE, NOT_DONE = "done", "not_done"


class EffectRow(NamedTuple):
    """An open effect. ``arguments``: their text, where it is still kept; ``place``: of its delivery key; ``call_fp``:
    what it did, in the eyes of its run."""

    call: str
    tool: str
    run: str | None
    uid: int
    key: str
    since_ms: int
    arguments: str | None
    place: bytes | None
    call_fp: str | None


def open_effects(store: Store, most: int) -> list[EffectRow]:
    """The newest ``most``, oldest first. Raises StoreError."""
    return [EffectRow(*row) for row in store.rows(_OPEN, (most,))][::-1]


def closed(effect: EffectRow, note: str, by: int | None, now_ms: int) -> tuple[Change, ...]:
    """Somebody says what became of it. ``by``: whose uid; None: the daemon itself."""
    told = {"tool": effect.tool, "note": note, "by": by}
    event = draft(EventKind.EFFECT_CLOSED, now_ms, effect.call, effect.uid, effect.run, told)
    return (Change(_CLOSE, (note, now_ms, by, effect.call), event),)


def reconciled(effect: EffectRow, state: str, note: str, asked: str, now_ms: int) -> tuple[Change, ...]:
    """Its contract's tool says what became of it: ``state``, in the call ``asked``. What was not done may be sent again
    under its delivery key."""
    told = {"tool": effect.tool, "state": state, "asked": asked}
    event = draft(EventKind.EFFECT_RECONCILED, now_ms, effect.call, effect.uid, effect.run, told)
    change = Change(_CLOSE, (note, now_ms, None, effect.call), event)
    return (change, Change(_FREE, (effect.call,))) if state == NOT_DONE else (change,)


def arguments_of(store: Store, call: str) -> str | None:
    """The whole text of an effect's arguments, where it is still kept. Raises StoreError."""
    return next((text for (text,) in store.rows("SELECT arguments FROM calls WHERE id = ?", (call,))), None)
