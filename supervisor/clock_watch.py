"""Tells the log when the clocks have gone apart, so that its stamps explain themselves. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from protocol._events import EventKind
from supervisor.clock import ClockOffsets, offsets
from supervisor.core.clock_gaps import gap_between
from supervisor.trouble import Note


class ClockWatch:
    """``offsets``: how far apart the clocks are at the moment."""

    def __init__(self, note: Note, offsets: Callable[[], ClockOffsets] = offsets) -> None:
        self._note, self._offsets = note, offsets
        self._before = offsets()

    def look(self) -> None:
        """Note what has happened to the clocks since the last look, if anything has."""
        self._before, before = self._offsets(), self._before
        if gap := gap_between(before, self._before):
            self._note(EventKind.CLOCK_JUMPED, **gap._asdict())
