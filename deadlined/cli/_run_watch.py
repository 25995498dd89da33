"""Watching a run from a terminal: its events as they are committed, until it has stopped, and Ctrl-C as a cancel.

Two questions are open all the time: what has happened, and whether it has stopped. A stop is told when everything that
happened before it was.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from deadlined._conversation import Exchange
from deadlined._errors import ConnectionLost, DaemonSilent
from deadlined.cli._session import ANSWER_TIMEOUT_S
from deadlined.cli._waiting import TICK_S
from deadlined.client import Client
from protocol import _client_messages as cm
from protocol._events import Event, EventKind
from protocol._runs import StopRecord

_WAIT_MS = 10_000
"""How long the daemon may let a question for events wait."""
_GOES_ON = (EventKind.RUN_RESUMED, EventKind.RUN_SETTLED)


class RunWatch:
    """``show`` gets every event behind number ``after``. Once ``interrupted()`` is true the run is cancelled: by
    ``cancel``, where it is for somebody else to do."""

    def __init__(
        self,
        client: Client,
        run: str,
        show: Callable[[Event], None],
        interrupted: Callable[[], bool],
        cancel: Callable[[], None] | None = None,
        after: int = 0,
    ) -> None:
        self._line, self._run, self._show, self._after = client._line, run, show, after
        self._interrupted, self._cancel = interrupted, cancel or self._cancel_run
        self._cancelled = self._suspended = False
        self._events: Exchange | None = None
        self._asked_s = 0.0

    def to_stop(self) -> StopRecord:
        """Why it does not run any more; a suspended one counts. Raises ConnectionLost, DaemonSilent, RequestRefused."""
        stop = self._line.ask(cm.WaitRun(id=0, run=self._run))
        while not stop.over:
            self._hear(stop)
        record = stop.outcome(cm.RunSettled).stop
        self._suspended = record.outcome == "suspended"
        with contextlib.suppress(ConnectionLost):  # the run has ended with its daemon, which answers nothing any more
            self._take_rest()
        return record

    def to_resumption(self) -> None:
        """Until a suspended one goes on, or has ended. Raises as above."""
        while self._suspended:
            self._hear(None)

    def _hear(self, stop: Exchange | None) -> None:
        """Events for a moment; less, when the run has stopped."""
        if self._events is None:
            self._events, self._asked_s = self._line.ask(self._next(_WAIT_MS)), time.monotonic()
        events = self._events
        self._line.wait_until(lambda: events.over or (stop is not None and stop.over), TICK_S)
        if events.over:
            self._events = None
            self._take(events.outcome(cm.Events))
        elif time.monotonic() - self._asked_s > _WAIT_MS / 1000 + ANSWER_TIMEOUT_S:
            raise DaemonSilent("answer", ANSWER_TIMEOUT_S)
        if self._interrupted() and not self._cancelled:
            self._cancelled = True
            self._cancel()

    def _take_rest(self) -> None:
        """What was committed before the stop was told, and perhaps that it goes on."""
        try:
            while self._take(self._line.answered(self._next(0)).outcome(cm.Events)):
                pass
        except ConnectionLost:
            if self._events is not None:  # may have been answered before
                self._take(self._events.outcome(cm.Events))

    def _cancel_run(self) -> None:
        self._line.ask(cm.CancelRun(id=0, run=self._run))  # the wait for its stop hears what comes of it

    def _next(self, wait_ms: int) -> cm.ReadEvents:
        return cm.ReadEvents(id=0, after=self._after, run=self._run, wait_ms=wait_ms)

    def _take(self, answer: cm.Events) -> bool:
        """Show what is new; whether anything was. Two questions may have been answered by the same events."""
        new = [event for event in answer.events if event.seq > self._after]
        self._after = max(self._after, answer.last)
        for event in new:
            self._suspended = self._suspended and event.kind not in _GOES_ON
            self._show(event)
        return bool(new)
