"""Messages ⇄ bytes for each link, with every codec failure translated at this one seam.

Whatever msgspec raises for bytes that mean nothing here becomes RemoteProtocolError (with ``__cause__``), so that a
bad peer ends its own connection and no exception of a codec ever reaches a loop. What a worker says is judged further:
its content and its tools' schemas must be JSON (`_content`), or they would break at the client's encoder and look like
our own fault.

The types of the messages are the limit of what is built: where a client or the zygote speaks, no field takes an
arbitrary value, so a frame of a MiB never becomes a hundred MiB of empty lists. ``Ended.content`` must; its worker is
bounded by its own memory and by the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import msgspec

from protocol._client_messages import FromClient, FromDaemon
from protocol._content import DEPTH_LIMIT, content_fault, too_deep
from protocol._errors import LocalProtocolError, RemoteProtocolError
from protocol._framing import frame, line
from protocol._worker_messages import Ended, FromWorker, FromZygote, ToWorker, ToZygote, WorkerReady

__all__ = [
    "DEPTH_LIMIT",
    "Codec",
    "client_to_daemon",
    "daemon_to_client",
    "daemon_to_worker",
    "daemon_to_zygote",
    "ill_typed",
    "too_deep",
    "worker_to_daemon",
    "zygote_to_daemon",
]

_MEANINGLESS = (msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError)
_UNSAYABLE = (msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError, TypeError, ValueError, AttributeError)
_QUOTED = 200
"""Characters of a codec's error that are passed on: it may quote a MiB of what the peer wrote."""
Judge: TypeAlias = Callable[[Any], str | None]
Heard = TypeVar("Heard")
Said = TypeVar("Said")


class Codec(Generic[Said, Heard]):
    """One direction pair of a link: ``pack`` what we say (whole frame or line), ``unpack`` one body we heard.

    Has no state: one of a kind serves every connection.
    """

    __slots__ = ("_close", "_decoder", "_encoder", "_judge")

    def __init__(self, encoder: Any, decoder: Any, close: Callable[[bytes], bytes], judge: Judge | None) -> None:
        self._encoder, self._decoder, self._close, self._judge = encoder, decoder, close, judge

    def pack(self, message: Said) -> bytes:
        """The bytes to write. Raises LocalProtocolError for a value that the codec cannot express, or too large."""
        try:
            body: bytes = self._encoder.encode(message)
        except _UNSAYABLE as error:
            raise LocalProtocolError(f"a {type(message).__name__} cannot be encoded: {_quoted(error)}") from error
        return self._close(body)

    def unpack(self, body: bytes) -> Heard:
        """The message in one frame or line. Raises RemoteProtocolError for anything that is none."""
        try:
            message: Heard = self._decoder.decode(body)
        except _MEANINGLESS as error:
            raise RemoteProtocolError(f"a message cannot be understood: {_quoted(error)}") from error
        if self._judge is not None and (fault := self._judge(message)):
            raise RemoteProtocolError(f"a {type(message).__name__} {fault}")
        return message


def _quoted(error: BaseException) -> str:
    text = str(error)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def _no_extensions(code: int, _data: memoryview) -> NoReturn:
    raise msgspec.ValidationError(f"msgpack extension type {code} has no meaning here")


def _msgpack(heard: Any, close: Callable[[bytes], bytes], judge: Judge | None = None) -> Codec[Any, Any]:
    return Codec(msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(heard, ext_hook=_no_extensions), close, judge)


def _json(heard: Any) -> Codec[Any, Any]:
    return Codec(msgspec.json.Encoder(), msgspec.json.Decoder(heard), line, None)


def _bare(body: bytes) -> bytes:
    return body


def _worker_fault(message: object) -> str | None:
    if isinstance(message, Ended):
        fault = content_fault(message.content)
        return f"has content that {fault}" if fault else None
    if isinstance(message, WorkerReady):
        for tool in message.tools or ():
            if fault := content_fault(tool.schema):
                return f"has a schema that {fault}"
    return None


@cache
def daemon_to_client(speaks_json: bool) -> Codec[FromDaemon, FromClient]:
    """The daemon's end of a client's connection."""
    return _json(FromClient) if speaks_json else _msgpack(FromClient, frame)


@cache
def client_to_daemon(speaks_json: bool = False) -> Codec[FromClient, FromDaemon]:
    """A client's end."""
    return _json(FromDaemon) if speaks_json else _msgpack(FromDaemon, frame)


def ill_typed(message: FromClient, body: bytes) -> str | None:
    """What a daemon would not understand about a message of ours, as ``key=5``: in Python nobody has checked it."""
    try:
        _reader(type(message)).decode(body)
    except _MEANINGLESS as error:
        return _quoted(error)
    return None


@cache
def _reader(kind: type[FromClient]) -> msgspec.msgpack.Decoder[FromClient]:
    """Of one kind alone: those of all together take a start-up longer."""
    return msgspec.msgpack.Decoder(kind)


@cache
def daemon_to_worker() -> Codec[ToWorker, FromWorker]:
    """The daemon's end of a worker's socket."""
    return _msgpack(FromWorker, frame, _worker_fault)


@cache
def worker_to_daemon() -> Codec[FromWorker, ToWorker]:
    """A worker's end."""
    return _msgpack(ToWorker, frame)


@cache
def daemon_to_zygote() -> Codec[ToZygote, FromZygote]:
    """The daemon's end of the zygote's datagram socket: one message a datagram, no length."""
    return _msgpack(FromZygote, _bare)


@cache
def zygote_to_daemon() -> Codec[FromZygote, ToZygote]:
    """The zygote's end."""
    return _msgpack(ToZygote, _bare)
