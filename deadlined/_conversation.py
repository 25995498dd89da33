"""A client's side of one connection, without I/O: greeting, request numbers, and which answer belongs to which request.

Owned here: everything a client must know about the wire. Left to the shells (``client``, ``async_client``): sockets,
waiting, locks. Bytes come in by ``receive``, bytes to write come out of ``hello`` and ``ask``.

Rules
1. ``hello`` first; nothing can be asked before Welcome is heard (``ready``).
2. An Exchange is one request and its answers. It is *announced* by Submitted, and *over* by its last answer; which
   answers a request may have, and which is the last, is the link's to say (``protocol/_links.py``, rule 4).
3. Failed with an id ends that exchange as RequestRefused; without an id it ends the connection.
4. Whatever else the peer may not say is the peer's fault: the connection ends.
5. When the connection ends every open exchange is over with the same error, and nothing can be asked again.
"""

from __future__ import annotations

from typing import TypeVar

from deadlined._errors import ConnectionLost, DeadlinedError, NotUnderstood, RequestRefused
from protocol import _client_messages as cm
from protocol._client_messages import Answer, Request
from protocol._codecs import client_to_daemon, ill_typed
from protocol._errors import InvalidArguments, LocalProtocolError, RemoteProtocolError
from protocol._framing import FRAME_HARD_LIMIT, FRAME_LIMIT, FrameBuffer
from protocol._links import ClientLink, Speaker

Kind = TypeVar("Kind")

_LENGTH = 4
"""Bytes of a frame before its body."""
UNKNOWN_CALL = "unknown_call"
"""The daemon's code for a call, or a submit, that it does not know (any more)."""


class Exchange:
    """One request, and what has been heard about it."""

    __slots__ = ("answer", "error", "request", "submitted")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.submitted: cm.Submitted | None = None
        self.answer: Answer | None = None
        self.error: DeadlinedError | None = None

    def end(self, last: Answer | cm.Failed) -> None:
        """The last answer has come."""
        if isinstance(last, cm.Failed):
            self.error = RequestRefused(last.error)
        else:
            self.answer = last

    @property
    def over(self) -> bool:
        """Whether nothing more will be heard about it."""
        return self.answer is not None or self.error is not None

    @property
    def announced(self) -> bool:
        """Whether the call's id is known, or will never be."""
        return self.submitted is not None or self.over

    @property
    def detached(self) -> bool:
        """Whether it submitted a call that goes on without it."""
        return isinstance(self.answer, cm.Submitted)

    @property
    def deadline_ms(self) -> int | None:
        """The budget that holds for the call that was submitted, once it is announced."""
        return self.submitted.deadline_ms if self.submitted else None

    def call(self) -> str:
        """The id of the call that an announced submit made. Raises what ended the exchange instead."""
        if self.submitted is not None:
            return self.submitted.call
        return self.outcome(cm.Settled).result.call

    def outcome(self, kind: type[Kind]) -> Kind:
        """The last answer, which must be a ``kind``. Raises what ended the exchange instead of it."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # one error may be raised to many waiters
        if not isinstance(self.answer, kind):
            raise NotUnderstood(f"the daemon answered {type(self.request).__name__} by {type(self.answer).__name__}")
        return self.answer


def cancel_of(call: str, end: Exchange | None) -> cm.Cancel:
    """What ends ``call``: by its submit where ``end`` is that, because then its client cancels it and no operator."""
    if end is not None and isinstance(end.request, cm.Submit):
        return cm.Cancel(id=0, submit=end.request.id)
    return cm.Cancel(id=0, call=call)


def was_live(cancel: Exchange) -> bool:
    """Whether a cancel that was answered had something to end. A submit that has just settled is no longer known."""
    by_submit = isinstance(cancel.request, cm.Cancel) and cancel.request.submit is not None
    if by_submit and isinstance(cancel.error, RequestRefused) and cancel.error.error.code == UNKNOWN_CALL:
        return False
    return cancel.outcome(cm.CancelAccepted).live


class Conversation:
    """One connection's talk."""

    def __init__(self, client: str = "") -> None:
        self.welcome: cm.Welcome | None = None
        self.error: DeadlinedError | None = None
        self._client = client
        self._link = ClientLink(Speaker.CLIENT)
        self._codec = client_to_daemon()
        self._frames = FrameBuffer(FRAME_HARD_LIMIT)
        self._open: dict[int, Exchange] = {}
        self._last_id = 0

    @property
    def ready(self) -> bool:
        """Whether requests may be asked."""
        return self.welcome is not None and self.error is None

    def hello(self) -> bytes:
        """The first bytes to write."""
        return self._pack(cm.Hello(version=cm.VERSION, client=self._client, features=list(cm.FEATURES)))

    def ask(self, request: Request) -> tuple[Exchange, bytes]:
        """Number ``request`` and open its exchange; write the bytes at once, in the order of the asking.

        Raises InvalidArguments (a ValueError) for a request that cannot be encoded, that no daemon would understand (a
        number where a text is wanted) or that is larger than the daemon takes (nothing was opened), and the
        connection's error when it has ended.
        """
        if self.error is not None:
            raise self.error
        self._last_id += 1
        request.id = self._last_id
        data = self._pack(request)
        exchange = self._open[request.id] = Exchange(request)
        return exchange, data

    def receive(self, data: bytes) -> list[Exchange]:
        """Take what was read; empty = the stream ended. Returns the exchanges that moved: announced, or over.

        Never raises for what the peer said: rule 5 has it in every open exchange and in ``error``.
        """
        if not data:
            asked = "before it answered" if self._open or not self.ready else "while nothing was asked of it"
            return self.close(ConnectionLost(f"the daemon closed the connection {asked}"))
        moved: list[Exchange] = []
        try:
            for body in self._frames.feed(data):
                moved += self._hear(self._codec.unpack(body))
        except RemoteProtocolError as error:
            moved += self.close(NotUnderstood(f"the peer at the socket is not understood: {error}"))
        return moved

    def close(self, error: DeadlinedError) -> list[Exchange]:
        """The connection is over because of ``error`` (the first reason stays). Returns what was open until now."""
        if self.error is None:
            self.error = error
        moved = list(self._open.values())
        for exchange in moved:
            exchange.error = self.error
        self._open.clear()
        return moved

    def _pack(self, message: cm.FromClient) -> bytes:
        try:
            data = self._codec.pack(message)
        except LocalProtocolError as error:
            raise InvalidArguments(str(error)) from error
        if fault := ill_typed(message, data[_LENGTH:]):  # the daemon would end the connection for it, and all its calls
            raise InvalidArguments(f"a {type(message).__name__} cannot be sent: {fault}")
        limit = self.welcome.frame_limit if self.welcome else FRAME_LIMIT
        if len(data) - _LENGTH > limit:
            raise InvalidArguments(
                f"a request of {len(data) - _LENGTH} bytes; this daemon takes at most {limit} in one message"
            )
        self._link.say(message)
        return data

    def _hear(self, message: cm.FromDaemon) -> list[Exchange]:
        """The link has judged what may come; here is only what it means for an exchange."""
        self._link.hear(message)
        if isinstance(message, cm.Welcome):
            self.welcome = message
            return []
        if message.id is None:
            refused = RequestRefused(message.error)
            greeting = self.welcome is None
            return self.close(refused if greeting else ConnectionLost(f"the daemon ended the connection: {refused}"))
        exchange = self._open[message.id]
        if isinstance(message, cm.Submitted):
            exchange.submitted = message
        if message.id not in self._link.open:
            del self._open[message.id]
            exchange.end(message)
        return [exchange]
