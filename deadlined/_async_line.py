"""One connection under anyio: a task that reads, a task that writes, and the exchanges that other tasks wait for.

Owns the stream and its two tasks. What is said and heard is ``_conversation``'s.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio.abc import ByteStream

from deadlined._conversation import Conversation, Exchange
from deadlined._errors import ConnectionLost, DaemonSilent
from protocol._client_messages import Request

READ_SIZE = 1 << 16


class AsyncLine:
    """A connection to the daemon. Closing it ends every call that was submitted on it and not detached.

    ``read`` and ``write`` run as tasks of the owner's task group. They are shielded and end by ``close`` alone: whoever
    is cancelled still needs them, to hear that its call has really ended.
    """

    def __init__(self, stream: ByteStream, client: str, answer_timeout_s: float) -> None:
        self._stream = stream
        self._answer_timeout_s = answer_timeout_s
        self._conversation = Conversation(client)
        self._outbox = bytearray(self._conversation.hello())
        self._filled = anyio.Event()
        self._greeted = anyio.Event()
        self._moved: dict[Exchange, anyio.Event] = {}
        self._scopes = [anyio.CancelScope(shield=True), anyio.CancelScope(shield=True)]

    async def greet(self) -> None:
        """Wait for the daemon's welcome. Raises DaemonSilent, RequestRefused (an unknown version) or ConnectionLost."""
        with anyio.move_on_after(self._answer_timeout_s):
            await self._greeted.wait()
        if self._conversation.error is not None:
            raise self._conversation.error
        if not self._conversation.ready:
            raise DaemonSilent("greeting", self._answer_timeout_s)

    def ask_nowait(self, request: Request) -> Exchange:
        """Send ``request`` behind everything asked before it. Raises ValueError for one that cannot be said."""
        exchange, data = self._conversation.ask(request)
        self._outbox += data
        self._filled.set()
        return exchange

    async def answered(self, request: Request) -> Exchange:
        """Send a request that the daemon answers at once, and wait for it (bounded). Cancelling forgets the answer."""
        exchange = self.ask_nowait(request)
        with anyio.move_on_after(self._answer_timeout_s):
            await self.wait_until(exchange, lambda: exchange.over)
        if not exchange.over:
            raise DaemonSilent("answer", self._answer_timeout_s)
        return exchange

    async def wait_until(self, exchange: Exchange, so: Callable[[], bool]) -> None:
        """Wait until ``so()``, which is judged whenever ``exchange`` has moved."""
        while not so():
            await self._moved.setdefault(exchange, anyio.Event()).wait()

    async def read(self) -> None:
        """Hear the daemon until the connection ends."""
        with self._scopes[0]:
            while self._conversation.error is None:
                self._wake(self._conversation.receive(await self._received()))
            self._stop_writing()

    async def write(self) -> None:
        """Write what was asked, in order, as much at once as there is."""
        with self._scopes[1]:
            while self._conversation.error is None:
                if not self._outbox:
                    self._filled = anyio.Event()
                    await self._filled.wait()
                data, self._outbox = bytes(self._outbox), bytearray()
                try:
                    await self._stream.send(data)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # the reader meets the same end, and hears the daemon's last words before it

    def close(self) -> None:
        """End the connection and both tasks; who waits gets ConnectionLost."""
        self._wake(self._conversation.close(ConnectionLost("this client was closed")))
        for scope in self._scopes:
            scope.cancel()

    async def _received(self) -> bytes:
        try:
            return await self._stream.receive(READ_SIZE)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    def _wake(self, moved: list[Exchange]) -> None:
        if self._conversation.welcome is not None or self._conversation.error is not None:
            self._greeted.set()
        for exchange in moved:
            event = self._moved.pop(exchange, None)
            if event is not None:
                event.set()

    def _stop_writing(self) -> None:
        self._scopes[1].cancel()
