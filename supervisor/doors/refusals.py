"""The audit of who was not let in. Owns how often it is told: who knocks without end must not fill the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol._events import EventKind
from supervisor.clock import now_ns
from supervisor.core.repeats import Repeats
from supervisor.doors.peers import Peer

Note = Callable[..., Any]


class Refusals:
    """``note``: the journal's."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._repeats = Repeats()
        self.count = 0
        """All of them, since the start."""

    def tell(self, peer: Peer, why: str) -> None:
        """A peer is being turned away. ``left_out`` of the event: how many like it were not told since the last."""
        self.count += 1
        left_out = self._repeats.on_event(f"{peer.uid} {why}", now_ns())
        if left_out is not None:
            more = {"left_out": left_out} if left_out else {}
            self._note(EventKind.CLIENT_REFUSED, uid=peer.uid, gid=peer.gid, pid=peer.pid, why=why, **more)
