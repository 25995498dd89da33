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
    QUARANTINED = "quarantined"
    QUARANTINE_LIFTED = "quarantine_lifted"
    EVENTS_LOST = "events_lost"
    """The disk took nothing for so long that ``count`` events had to be dropped before they were numbered."""


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
    hash: str
