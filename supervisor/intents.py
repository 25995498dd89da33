"""What a call must have on the disk before it goes on: a detached one its plan before its submitter hears of it, one
that may change something its claim before its frame leaves, and both their result before it is told.

Owns the line of calls that wait for the disk; `journal` owns the disk. A call whose deadline passes in this line, or
that is ended there, was not delivered: whatever the disk does afterwards, its frame does not leave.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol._deadlines import NEVER_NS
from protocol._events import EventKind
from protocol._outcomes import CallResult
from supervisor.clock import wall_ms
from supervisor.core.call import State
from supervisor.journal import rows
from supervisor.journal.journal import Journal
from supervisor.journal.results import KeptCall
from supervisor.journal.store import Change
from supervisor.live_call import LiveCall

Go = Callable[[LiveCall], None]


class Intents:
    """``lost(call)`` is told of a call that waits here and cannot be made durable."""

    def __init__(self, journal: Journal, result_ttl_ms: int, lost: Go) -> None:
        self._journal, self._ttl_ms, self._lost = journal, result_ttl_ms, lost
        self._waiting: dict[str, LiveCall] = {}

    def plan(self, call: LiveCall, go: Go) -> None:
        """Record a detached call, then ``go(call)``, if it still waits by then."""
        self._enter(call, rows.planned(_row(call), wall_ms()), go)

    def detach(self, call: LiveCall) -> None:
        """Somebody detaches a call that is on its way already: record it, and tell who asked."""

        def then(durable: bool) -> None:
            if durable and call.result is None:
                call.tell_planned()

        call.recorded = True
        self._journal.append(rows.planned(_row(call), wall_ms()), then)

    def claim(self, call: LiveCall, go: Go) -> None:
        """Record that the call is about to run, then ``go(call)``, if it still waits by then."""
        self._enter(call, rows.claimed(_row(call), wall_ms()), go)

    def resumed(self, call: LiveCall) -> tuple[Change, ...]:
        """A call that a person has approved, for the commit that uses the approval up."""
        call.recorded = True
        return rows.planned(_row(call), wall_ms())

    def ask(self, call: LiveCall, asked: tuple[Change, ...], go: Go) -> None:
        """Record that a person is asked before the call runs, then ``go(call)``, if it still waits by then."""
        self._enter(call, asked, go)

    def _enter(self, call: LiveCall, changes: tuple[Change, ...], go: Go) -> None:
        self._waiting[call.id] = call
        call.recorded = True

        def then(durable: bool) -> None:
            self._waiting.pop(call.id, None)
            if call.machine.state is not State.WAITING:
                return
            (go if durable else self._lost)(call)

        self._journal.append(changes, then, keep=False)

    def advanced(self, call: LiveCall, state: str) -> None:
        """A claimed call was sent, or accepted. Nobody waits for this one."""
        if call.recorded:
            self._journal.append(rows.advanced(_row(call), state, wall_ms()))

    def settled(
        self,
        call: LiveCall,
        result: CallResult,
        kept: KeptCall,
        then: Callable[[bool], None] | None,
        charge: dict[str, int],
    ) -> None:
        """Record a result; with ``then`` it is synced first, and ``then(durable)`` hears of it. ``charge``: what it
        changes of what its run has used."""
        now = wall_ms()
        changes = rows.settled(_row(call), result, kept, now + self._ttl_ms, now, charge)
        self._journal.append((*changes, *call.also), then)

    def truncated(self, call: LiveCall, result: CallResult) -> None:
        """Not all that a call wrote was kept, or is in the view of its result."""
        told = {"bytes": result.output.bytes, "reason": result.reason, "path": result.output.path}
        self._journal.note(EventKind.OUTPUT_TRUNCATED, call.id, call.uid, call.judged.run, **told)

    def refused(self, call: LiveCall, reason: str, text: str) -> None:
        """Nothing of the call was begun, and no row is made for it: an event only."""
        judged = call.judged
        event = rows.refused(
            call.id, call.uid, judged.run, judged.tool, reason, text, call.submitted_ms, judged.decision
        )
        self._journal.append((event,))

    def amended(self, kept: KeptCall) -> None:
        """A result was told without the disk, and says so: the disk is to have it as it was told."""
        self._journal.append(rows.amended(kept))

    def overdue(self, now_ns: int) -> list[LiveCall]:
        """Those whose deadline passed in the line."""
        return [call for call in self._waiting.values() if call.judged.deadline_ns <= now_ns]

    def next_timer_ns(self) -> int:
        """The earliest deadline in the line; NEVER_NS when nobody waits."""
        return min(
            (call.judged.deadline_ns for call in self._waiting.values() if call.machine.state is State.WAITING),
            default=NEVER_NS,
        )


def _row(call: LiveCall) -> rows.CallRow:
    judged, claim = call.judged, call.claim
    return rows.CallRow(
        call.id,
        call.uid,
        judged.run,
        judged.tool,
        claim.place if claim else None,
        claim.said if claim else None,
        call.key,
        not call.has_effect,
        judged.deadline_ms,
        judged.arguments if call.has_effect else None,
        call.submitted_ms,
        call.call_fp,
    )
