"""One send per client and round of the loop: answers that are made in one round leave together at its end.

With many calls in flight several workers answer in one round; a system call and a wake of the client for each of their
answers would cost more than the answers. Trio calls an instrument right before it waits for the next events: whatever
was said in the round is sent there, so a single answer is no later than it would have been.
"""

from __future__ import annotations

from typing import Protocol

import structlog
import trio

_LOG = structlog.get_logger("deadlined.door")


class Sender(Protocol):
    """A connection that has something to send."""

    def flush(self) -> None:
        """Send it, without waiting."""


class EndOfRound(trio.abc.Instrument):
    """Whoever asked is flushed once, before the loop waits again."""

    def __init__(self) -> None:
        self._senders: list[Sender] = []

    def ask(self, sender: Sender) -> None:
        """``sender`` wants its `flush` called at the end of this round."""
        self._senders.append(sender)

    def before_io_wait(self, timeout: float) -> None:
        """Trio's word that a round is over."""
        if not self._senders:
            return
        senders, self._senders = self._senders, []
        for sender in senders:
            try:
                sender.flush()
            except Exception:  # noqa: BLE001  # Trio would drop the instrument, and with it every answer; logged
                _LOG.exception("supervisor_bug")
