"""An HTTP server of a few lines that answers with exactly the bytes it is given, and ends as it is told to."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import trio

from supervisor.core.model_events import ModelEvent, Request
from supervisor.models.http import HttpGateway
from supervisor.models.speech import Dialect

EVENTS = "text/event-stream"


class Answer(NamedTuple):
    """``sent``: bytes of the body. ``then``: ``close`` after a whole body, or ``stay`` for the next request, ``cut``
    (the connection ends before the body does), ``reset``, ``stall``."""

    sent: bytes = b""
    status: int = 200
    kind: str = EVENTS
    more: tuple[str, ...] = ()
    then: str = "close"

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} X", f"content-type: {self.kind}", "transfer-encoding: chunked", *self.more]
        return "\r\n".join([*lines, "", ""]).encode()


class Peer:
    """``choose``: the answer to a head and a JSON body; ``heard``: those that came."""

    def __init__(self, choose: Callable[[str, Any], Answer]) -> None:
        self._choose, self.heard = choose, list[tuple[str, Any]]()
        self.asked, self.closed = trio.Event(), trio.Event()
        self.base = ""
        self.connections = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Requests and their answers; somebody who goes away before that is nobody's fault here."""
        self.connections += 1
        try:
            while (asked := await _request(stream)) is not None:
                self.heard.append(asked)
                self.asked.set()
                answer = self._choose(*asked)
                await self._answer(stream, answer)
                if answer.then != "stay":
                    return
        except trio.BrokenResourceError:
            pass

    async def _answer(self, stream: trio.SocketStream, answer: Answer) -> None:
        if answer.then == "mute":
            await self._until_gone(stream)
            return
        piece = f"{len(answer.sent):x}\r\n".encode() + answer.sent + b"\r\n" if answer.sent else b""
        whole = answer.then in ("close", "stay")
        await stream.send_all(answer.head() + piece + (b"0\r\n\r\n" if whole else b""))
        if answer.then == "stay":
            return
        if answer.then == "stall":
            await self._until_gone(stream)
        if answer.then == "reset":
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()

    async def end_when_asked(self, scope: trio.CancelScope) -> None:
        """The deadline of a scope is now, as soon as a request has come."""
        await self.asked.wait()
        scope.deadline = trio.current_time()

    async def _until_gone(self, stream: trio.SocketStream) -> None:
        try:
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
        self.closed.set()


async def _request(stream: trio.SocketStream) -> tuple[str, Any] | None:
    """Head and JSON body; None: it did not come whole."""
    data = b""
    while not _is_whole(data):
        if not (piece := await stream.receive_some()):
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


def _is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    return bool(end) and len(body) >= int(lengths[0])


@asynccontextmanager
async def open_peer(*answers: Answer, answer: Callable[[str, Any], Answer] | None = None) -> AsyncIterator[Peer]:
    """A server on a port of its own. ``answers``: one for each request, in their order; or ``answer`` chooses."""
    rest = iter(answers)
    peer = Peer(answer or (lambda head, body: next(rest)))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, peer.serve, 0)
            peer.base = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            try:
                yield peer
            finally:
                nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_gateway(
    peer: Peer, dialect: Dialect, key: str | None = "key-123456", **more: Any
) -> AsyncIterator[HttpGateway]:
    """A gateway to it."""
    gateway = HttpGateway("m", dialect, peer.base, key, **more)
    try:
        yield gateway
    finally:
        with trio.CancelScope(shield=True):
            await gateway.aclose()


async def said(gateway: HttpGateway, request: Request) -> list[ModelEvent]:
    """All events of one attempt."""
    async with aclosing(gateway.stream(request)) as events:
        return [event async for event in events]
