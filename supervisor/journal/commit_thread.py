"""The one thread that uses the store: it commits when the loop rings, and says when it has.

Owns the hand-over in both directions, and that the store is asked by one thread at a time. Leaves to `journal` what is
written, and what becomes of those who wait. A standing thread, since calls wait for it before they run: borrowing one
for each commit costs about as much as SQLite does in it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class CommitThread:
    """``write`` is called in the thread, once for each `ring`. Ring again when ``written`` was called."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._turn = threading.Lock()
        """Who has it may use the store."""
        self._asking = trio.CapacityLimiter(1)
        self._bell = threading.Lock()
        """The thread has it, and waits to take it again: to ring is to release it."""
        self._bell.acquire()
        self._over = -1
        """An eventfd, -1 while nothing is to be written. A loop that waits for one is awake in a third of the time that
        a call into it from a thread takes (0.06 against 0.17 ms)."""
        self._closing = threading.Lock()
        """Held where `_over` is closed or written to: the thread may be at work when nobody waits for it any more."""

    @property
    def running(self) -> bool:
        """Whether `ring` may be called."""
        return self._over >= 0

    async def run(
        self, written: Callable[[], None], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Write when rung, until cancelled; ``written`` is called in the loop after each time.

        What ``write`` or ``written`` raise comes out here. A write under way is not waited for: see `ask`.
        """
        self._over = over = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    partial(
                        trio.to_thread.run_sync, self._serve, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True
                    )
                )
                task_status.started()
                while True:
                    await trio.lowlevel.wait_readable(over)
                    os.eventfd_read(over)
                    written()
        finally:
            self._stop(over)

    def ring(self) -> None:
        """Have it write."""
        self._bell.release()

    async def ask(self, question: Callable[..., T], *values: Any) -> T:
        """Call something that uses the store, in a thread, between two writes. Raises what it does.

        Cancelled, it is called all the same, and nobody hears the answer.
        """

        def in_turn() -> T:
            with self._turn:
                return question(*values)

        return await trio.to_thread.run_sync(in_turn, limiter=self._asking, abandon_on_cancel=True)

    async def wait_turn(self) -> None:
        """Wait until a write that is under way is over."""
        await self.ask(lambda: None)

    def _stop(self, over: int) -> None:
        with self._closing:
            self._over = -1
            os.close(over)
        if self._bell.locked():
            self._bell.release()

    def _serve(self) -> None:
        while self._bell.acquire() and self._written():
            with self._closing:
                if self._over >= 0:
                    os.eventfd_write(self._over, 1)

    def _written(self) -> bool:
        with self._turn:
            if self._over < 0:  # what is left is somebody else's, who may have had the turn in between
                return False
            self._write()
            return True
