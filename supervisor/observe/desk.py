"""Keeps the metrics up with the log, tells of alerts, and answers who asks. A shell: what is counted is `metrics`'.

Whoever asks is answered with everything that was committed before the question. A log that cannot be read counts for
nothing more, and the question is answered with what there is.
"""

from __future__ import annotations

from typing import Protocol

import structlog
import trio

from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo
from supervisor.journal.journal import Journal
from supervisor.journal.store import StoreError
from supervisor.observe.exposition import render
from supervisor.observe.metrics import Metrics

_LOG = structlog.get_logger("deadlined.observe")
_AT_ONCE = 200
"""Events that are read and counted in one go: a millisecond of the loop."""
_PAUSE_S = 0.5
"""Between two looks at a log that grows; who asks does not wait for it."""
_BREATH_S = 0.02
"""Between two pieces of a long log at the start, for everybody else who needs the disk and the loop."""
_ASKS = 16
"""Questions of one connection that may wait at a time."""


class Asker(Protocol):
    """Whoever asks, at a door."""

    def say(self, message: cm.FromDaemon) -> None:
        """Send an answer, now and without waiting."""


class MetricsDesk:
    """One per daemon; `run` must be running for anybody to be answered."""

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        self._journal, self._metrics = journal, metrics
        self._asked: list[tuple[Asker, int]] = []
        self._nap: trio.CancelScope | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Count and answer until cancelled. What was in the log before is counted too, and alerts nobody."""
        history = self._journal.seq
        task_status.started()
        while True:
            asked, until = list(self._asked), self._journal.seq  # of one instant: all before the question is counted
            await self._count(until, history)
            if asked:
                await self._answer(asked)
            elif not self._asked:
                await self._rest()

    def ask(self, asker: Asker, ask: cm.AskMetrics) -> None:
        """Answer one question, when everything that is committed now has been counted."""
        if sum(one is asker for one, _ in self._asked) >= _ASKS:
            text = f"at most {_ASKS} questions for metrics at a time on one connection"
            asker.say(cm.Failed(ask.id, ErrorInfo(ErrorClass.OVERLOADED, "overloaded", text)))
            return
        self._asked.append((asker, ask.id))
        if self._nap is not None:
            self._nap.cancel()

    def left(self, asker: Asker) -> None:
        """An asker is gone: nobody need answer it."""
        self._asked = [(one, number) for one, number in self._asked if one is not asker]

    async def _rest(self) -> None:
        with trio.CancelScope() as self._nap:
            await self._journal.wait_moved(self._metrics.seq)
            await trio.sleep(_PAUSE_S)
        self._nap = None

    async def _count(self, until: int, history: int) -> None:
        while self._metrics.seq < until:
            try:
                events = await self._journal.events(self._metrics.seq, _AT_ONCE)
            except StoreError:
                return  # the journal tells of its own trouble
            for event in events:
                for alert in self._metrics.on(event):
                    if event.seq > history:
                        _LOG.warning("run_over_threshold", **alert._asdict())
            if len(events) < _AT_ONCE:
                return
            if not self._asked:
                await trio.sleep(_BREATH_S)

    async def _answer(self, asked: list[tuple[Asker, int]]) -> None:
        """One text for all who had asked; whoever asks while it is written is answered by the next."""
        text = await trio.to_thread.run_sync(render, self._metrics.snapshots())
        for one in asked:
            if one in self._asked:  # else it has left meanwhile
                self._asked.remove(one)
                one[0].say(cm.Metrics(one[1], text))
