"""Reading a call's raw output, or the log of events, without I/O: what to ask next, and what an answer means."""

from __future__ import annotations

from protocol._client_messages import Events, OutputChunk, ReadEvents, ReadOutput
from protocol._events import Event, EventKind

POLL_S = 0.1
"""How long to rest once all that a running call has written was read: at most ten looks a second."""
_AT_ONCE = 256 << 10
_EVENT_WAIT_MS = 10_000
"""How long the daemon may let a question for new events wait: less than a client waits for an answer."""


class EventCursor:
    """A place in the log, or in the events of one call or run."""

    __slots__ = ("_after", "_call", "_follow", "_run", "ended")

    def __init__(self, after: int, call: str | None, follow: bool, run: str | None = None) -> None:
        self._after, self._call, self._run, self._follow = after, call, run, follow
        self.ended = False

    def next_request(self) -> ReadEvents:
        """Ask for what follows the place reached."""
        wait_ms = _EVENT_WAIT_MS if self._follow else 0
        return ReadEvents(id=0, after=self._after, call=self._call, run=self._run, wait_ms=wait_ms)

    def take(self, answer: Events) -> list[Event]:
        """The new events. The end is an answer with none; with ``follow`` a run's settlement, and else never."""
        self._after = answer.last
        if self._follow:
            self.ended = self._run is not None and any(one.kind == EventKind.RUN_SETTLED for one in answer.events)
        else:
            self.ended = not answer.events
        return answer.events


class OutputCursor:
    """A place in one stream of one call's raw output.

    ``caught_up``: what was there has been read; rest for POLL_S before the next question. ``ended``: so has all there
    will ever be.
    """

    __slots__ = ("_call", "_stream", "caught_up", "ended", "offset")

    def __init__(self, call: str, stream: str = "both", offset: int = 0) -> None:
        self._call, self._stream, self.offset = call, stream, offset
        self.caught_up = self.ended = False

    def next_request(self) -> ReadOutput:
        """Ask for what follows the place reached."""
        return ReadOutput(id=0, call=self._call, offset=self.offset, limit=_AT_ONCE, stream=self._stream)

    def take(self, chunk: OutputChunk) -> bytes:
        """The new bytes, if there are any."""
        self.offset = chunk.offset + len(chunk.data)
        self.ended = chunk.settled and not chunk.data
        self.caught_up = not chunk.settled and len(chunk.data) < _AT_ONCE
        return chunk.data
