"""Those who read the log of events: answers each from what is committed, now or as soon as there is something new."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

import trio

from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo
from supervisor.journal.journal import Journal
from supervisor.journal.store import StoreError

if TYPE_CHECKING:
    from supervisor.asker import Asker

_READS = 16
"""Questions of one connection that may wait at a time."""
_ANSWER_BYTES = 512 << 10
"""Below every frame limit that a configuration may set is not possible; below the usual one it is."""


class EventReaders:
    """One per daemon; `run` must be running for anybody to be answered."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._nursery: trio.Nursery | None = None
        self._asked: defaultdict[Asker, set[trio.CancelScope]] = defaultdict(set)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def ask(self, asker: Asker, ask: cm.ReadEvents) -> None:
        """Answer one question, in its time."""
        if len(self._asked[asker]) >= _READS:
            text = f"at most {_READS} readings of events at a time on one connection"
            asker.say(cm.Failed(ask.id, ErrorInfo(ErrorClass.OVERLOADED, "overloaded", text)))
            return
        scope = trio.CancelScope()
        self._asked[asker].add(scope)
        assert self._nursery is not None
        self._nursery.start_soon(self._answer, asker, ask, scope)

    def left(self, asker: Asker) -> None:
        """An asker is gone: nobody need answer it."""
        for scope in self._asked.pop(asker, ()):
            scope.cancel()

    async def _answer(self, asker: Asker, ask: cm.ReadEvents, scope: trio.CancelScope) -> None:
        with scope:
            try:
                answer: cm.FromDaemon = await self._found(asker, ask)
            except StoreError as error:
                answer = cm.Failed(ask.id, ErrorInfo(ErrorClass.BUG, "store_unavailable", str(error)))
            self._asked[asker].discard(scope)
            asker.say(answer)

    async def _found(self, asker: Asker, ask: cm.ReadEvents) -> cm.Events:
        """A client hears of its own uid's calls; root and the daemon's own uid of everything."""
        uid = None if asker.uid in (0, os.geteuid()) else asker.uid
        with trio.move_on_after(ask.wait_ms / 1_000):
            await self._journal.wait_moved(ask.after)
        seen = self._journal.seq
        found = await self._journal.events(ask.after, ask.limit, ask.call, uid, ask.run)
        if found:  # the log may have grown between the two: what is told now is not told again
            seen = found[-1].seq if len(found) == ask.limit else max(seen, found[-1].seq)
        return cm.Events(ask.id, found, max(seen, ask.after))
