"""What becomes of a call's files once it has settled: large ones are hashed, all are counted, the oldest are removed.

Nobody waits for any of it. One thread does it all, one file after the other, so that a hundred large outputs cost the
daemon no more than one processor's spare time. What has not been hashed when the daemon stops is not hashed any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import trio

from protocol._outcomes import CallResult
from supervisor.clock import now_ns, wall_ms
from supervisor.core.shelf import Kept, Shelf
from supervisor.journal.outputs import OutputStore, digest_of

_MOST_WAITING = 10_000
"""Files that wait to be looked at. Beyond that the oldest of them is counted without being hashed."""


class Seal(NamedTuple):
    """The digest of one raw file, when the call's result came too early for it."""

    call: str
    uid: int
    run: str | None
    stream: str
    bytes: int
    sha256: str


class _Waiting(NamedTuple):
    """A file to hash (``stream``), or a directory to weigh."""

    path: str
    result: CallResult
    uid: int
    stream: str | None


class OutputKeeper:
    """One per daemon; `run` must be running for anything to happen. ``sealed`` hears each digest once."""

    def __init__(self, store: OutputStore, shelf: Shelf, sealed: Callable[[Seal], None]) -> None:
        self._store, self._shelf, self._sealed = store, shelf, sealed
        self._waiting: deque[_Waiting] = deque()
        self._work = trio.Event()

    def settled(self, result: CallResult, uid: int, files: tuple[str, ...]) -> None:
        """A call has settled, and these are its files."""
        streams = {info.path: (name, info.bytes) for name, info in result.output.streams.items() if info.path}
        for path in files:
            name, size = streams.get(path, (None, 0))
            self._shelf.put(Kept(path, size, now_ns()))
            if name is None or path != result.output.path or result.output.sha256 is None:
                self._waiting.append(_Waiting(path, result, uid, name))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
        if self._waiting or self._shelf.full:
            self._work.set()

    def expire(self) -> None:
        """Have removed what is too old. Call it now and then."""
        self._work.set()

    async def run(self) -> None:
        """Count what an earlier life has left, then do what there is to do, until cancelled."""
        found = await trio.to_thread.run_sync(self._store.found, now_ns(), wall_ms(), abandon_on_cancel=True)
        self._shelf.recall(found)
        while True:
            await self._remove()
            while self._waiting:
                await self._look_at(self._waiting.popleft())
            if not self._shelf.full:
                await self._work.wait()
                self._work = trio.Event()

    async def _look_at(self, waiting: _Waiting) -> None:
        if waiting.stream is None:
            size = await trio.to_thread.run_sync(self._store.weigh, waiting.path, abandon_on_cancel=True)
            self._shelf.weighed(waiting.path, size)
        else:
            sha256 = await trio.to_thread.run_sync(digest_of, waiting.path, abandon_on_cancel=True)
            if sha256 is not None:
                result, size = waiting.result, waiting.result.output.streams[waiting.stream].bytes
                self._sealed(Seal(result.call, waiting.uid, result.run, waiting.stream, size, sha256))
        if self._shelf.full:
            await self._remove()

    async def _remove(self) -> None:
        """In one thread for all: a thread per file made a stop take 0.7 s for each thousand results that were kept."""
        if gone := self._shelf.due(now_ns()):
            await trio.to_thread.run_sync(self._discard, gone, abandon_on_cancel=True)

    def _discard(self, paths: list[str]) -> None:
        for path in paths:
            self._store.discard(path)
