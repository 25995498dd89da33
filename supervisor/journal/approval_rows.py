"""What the journal writes of approvals, as changes for the store, and what the next life reads of them.

asking    the checkpoint is on the disk, and nobody has heard of it: a life that finds one makes it void
pending   the call's result says so; the same commit has both
consumed  by which call stands in the same commit: `approved` is never on the disk by itself; by none, where what a
          person has confirmed is the end of a run
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from protocol._events import EventKind
from supervisor.core.approvals import State
from supervisor.core.checkpoints import Checkpoint, digest
from supervisor.journal.numbers import Draft
from supervisor.journal.rows import draft
from supervisor.journal.store import Change, Store

ASKING = "asking"
Changes: TypeAlias = tuple[Change, ...]
MOST = 10_000
"""So many of the newest are read."""
_INSERT = "INSERT INTO approvals (id, uid, run, call, state, asked_ms, expires_ms, checkpoint) VALUES (?,?,?,?,?,?,?,?)"
_PENDING = f"UPDATE approvals SET state = 'pending' WHERE id = ? AND state = '{ASKING}'"  # noqa: S608  # our own word
_DECIDE = """UPDATE approvals SET state = ?, version = ?, scope = ?, decided_by = ?, decided_ms = ?, note = ?,
    arguments = ?, executed = ? WHERE id = ?"""
_READ = """SELECT id, state, checkpoint, version, scope, decided_by, decided_ms, note, arguments, executed
    FROM approvals ORDER BY asked_ms DESC LIMIT ?"""
_ASKED = "SELECT data FROM events WHERE call = ? AND kind = ?"


class Decision(msgspec.Struct, frozen=True):
    """What became of an approval. ``by`` None: nobody's doing. ``arguments``: those of an edited version."""

    state: State
    by: int | None
    at_ms: int
    note: str = ""
    scope: str = "call"
    version: int = 1
    arguments: str | None = None
    executed: str | None = None


class StoredApproval(msgspec.Struct, frozen=True):
    """One as the disk has it. ``intact``: its checkpoint has the digest that the chain of events has."""

    id: str
    state: str
    packed: bytes
    decision: Decision | None
    intact: bool


def asked(checkpoint: Checkpoint, packed: bytes) -> tuple[Change, ...]:
    """Before anybody hears that a person is asked."""
    data = {
        "approval": checkpoint.approval,
        "tool": checkpoint.tool,
        "reason": checkpoint.reason,
        "expires_at_ms": checkpoint.expires_at_ms,
        "policy_version": checkpoint.policy_version,
        "checkpoint_sha256": digest(packed),
    }
    place = (checkpoint.uid, checkpoint.run, checkpoint.call)
    values = (checkpoint.approval, *place, ASKING, checkpoint.asked_at_ms, checkpoint.expires_at_ms, packed)
    return (Change(_INSERT, values, _event(EventKind.APPROVAL_ASKED, checkpoint, checkpoint.asked_at_ms, data)),)


def pending(approval: str) -> tuple[Change, ...]:
    """With the result that says so."""
    return (Change(_PENDING, (approval,)),)


def decided(checkpoint: Checkpoint, decision: Decision) -> tuple[Change, ...]:
    """What became of it; of a consumed one, in the commit that has its call."""
    word = "approve" if decision.state is State.CONSUMED else str(decision.state)
    data = {
        "approval": checkpoint.approval,
        "decision": "reject" if decision.state is State.REJECTED else word,
        "by": decision.by,
        "scope": decision.scope,
        "note": decision.note,
        "version": decision.version,
    }
    event = _event(EventKind.APPROVAL_DECIDED, checkpoint, decision.at_ms, data)
    said = (decision.scope, decision.by, decision.at_ms, decision.note, decision.arguments, decision.executed)
    return (Change(_DECIDE, (str(decision.state), decision.version, *said, checkpoint.approval), event),)


def consumed(checkpoint: Checkpoint, executed: str | None, now_ms: int) -> tuple[Change, ...]:
    """In the same commit as the call that comes of it; None: none does."""
    data = {"approval": checkpoint.approval, "executed": executed}
    return (Change(event=_event(EventKind.APPROVAL_CONSUMED, checkpoint, now_ms, data)),)


def too_old(before_ms: int) -> tuple[Change, ...]:
    """Those that were asked long ago and do not wait any more."""
    return (Change("DELETE FROM approvals WHERE asked_ms < ? AND state != 'pending'", (before_ms,)),)


def unreadable(approval: str) -> tuple[Change, ...]:
    """Its checkpoint is none any more: nobody can be asked about it."""
    return (Change("UPDATE approvals SET state = 'void' WHERE id = ?", (approval,)),)


def read(store: Store) -> Iterator[StoredApproval]:
    """Oldest first. Raises StoreError."""
    for row in reversed(list(store.rows(_READ, (MOST,)))):
        name, state, packed, version, scope, by, at_ms, note, arguments, executed = row
        decision = None
        if at_ms is not None:
            decision = Decision(State(state), by, at_ms, note, scope, version, arguments, executed)
        yield StoredApproval(name, state, packed, decision, decision is not None or _is_intact(store, name, packed))


def _is_intact(store: Store, approval: str, packed: bytes) -> bool:
    """Whether the chain of events has this checkpoint's digest. One that has no event is not known to be."""
    try:
        call = msgspec.json.decode(packed, type=Checkpoint).call
    except msgspec.MsgspecError:
        return False
    for (data,) in store.rows(_ASKED, (call, str(EventKind.APPROVAL_ASKED))):
        told = msgspec.json.decode(data)
        if told["approval"] == approval:
            return bool(told["checkpoint_sha256"] == digest(packed))
    return False


def _event(kind: EventKind, checkpoint: Checkpoint, now_ms: int, data: dict[str, Any]) -> Draft:
    return draft(kind, now_ms, checkpoint.call, checkpoint.uid, checkpoint.run, data)
