"""Whoever asks the daemon something, as the desk and those behind it see them: the doors have the connections."""

from __future__ import annotations

from typing import Protocol

from protocol import _client_messages as cm
from protocol._outcomes import CallResult
from supervisor.live_call import LiveCall


class Asker(Protocol):
    """Whoever asks, at a door. ``attached``: its calls by request id, which end with it. ``awaited``: those that it
    only waits for."""

    uid: int
    attached: dict[int, LiveCall]
    awaited: dict[int, LiveCall]

    def say(self, message: cm.FromDaemon) -> None:
        """Send an answer, now and without waiting."""

    def settled(self, request: int, result: CallResult) -> None:
        """A call that the request waits for has settled."""
