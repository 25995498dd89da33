"""What the journal tells: the kinds of events, and an event as a door shows it.

The words are a contract like those of `_outcomes`: lower_snake, never renumbered, never reused. A reader that meets a
kind it does not know shows it as it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class EventKind(StrEnum):
    """What happened."""

    DAEMON_STARTED = "daemon_started"
    DAEMON_STOPPED = "daemon_stopped"
    DAEMON_RECOVERED = "daemon_recovered"
    CLIENT_REFUSED = "client_refused"
    CALL_REFUSED = "call_refused"
    CALL_PLANNED = "call_planned"
    CALL_CLAIMED = "call_claimed"
    CALL_SENT = "call_sent"
    CALL_ACCEPTED = "call_accepted"
    CALL_ENDED = "call_ended"
    KILL_UNCONFIRMED = "kill_unconfirmed"
    KILL_CONFIRMED = "kill_confirmed"
    OUTPUT_SEALED = "output_sealed"
    WORKER_SPAWNED = "worker_spawned"
    WORKER_GONE = "worker_gone"
    RUN_ADMITTED = "run_admitted"
    STEP_BEGUN = "step_begun"
    BUDGET_RESERVED = "budget_reserved"
    BUDGET_SETTLED = "budget_settled"
    BUDGET_REFUSED = "budget_refused"
    DECIDE_STARTED = "decide_started"
    DECIDE_ENDED = "decide_ended"
    CALL_VALIDATED = "call_validated"
    DETECTOR_FIRED = "detector_fired"
    EVIDENCE_ADDED = "evidence_added"
    APPROVAL_ASKED = "approval_asked"
    APPROVAL_DECIDED = "approval_decided"
    APPROVAL_CONSUMED = "approval_consumed"
    RETRY_SCHEDULED = "retry_scheduled"
    FOLDED = "folded"
    FINISH_REFUSED = "finish_refused"
    RUN_SUSPENDED = "run_suspended"
    RUN_RESUMED = "run_resumed"
    RUN_SETTLED = "run_settled"
    EFFECT_RECONCILED = "effect_reconciled"
    EFFECT_CLOSED = "effect_closed"
    OUTPUT_TRUNCATED = "output_truncated"
    CLOCK_JUMPED = "clock_jumped"
    QUARANTINED = "quarantined"
    QUARANTINE_LIFTED = "quarantine_lifted"
    EVENTS_LOST = "events_lost"
    """The disk took nothing for so long that ``count`` events had to be dropped before they were numbered."""
    EVENT_UNREADABLE = "event_unreadable"
    """Stands in for a record that is no event any more: somebody else, or the disk, has changed it."""


class Event(msgspec.Struct):
    """One record of the log. ``seq`` has no gaps; ``hash`` covers the record and the hash before it (hex SHA-256).

    ``at_ms``: wall clock, milliseconds since 1970, for people; order is ``seq``'s.
    """

    seq: int
    at_ms: int
    kind: str
    call: str | None
    run: str | None
    uid: int | None
    data: dict[str, Any]
    """Of an event of a run also ``run_seq``: its number within the run, without gaps."""
    hash: str
