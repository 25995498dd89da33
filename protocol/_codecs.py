"""Messages ⇄ bytes for each link, with every codec failure translated at this one seam.

Whatever msgspec raises for bytes that mean nothing here becomes RemoteProtocolError (with ``__cause__``), so that a
bad peer ends its own connection and no exception of a codec ever reaches a loop.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from protocol._client_messages import FromClient, FromDaemon
from protocol._errors import LocalProtocolError, RemoteProtocolError
from protocol._framing import frame, line
from protocol._worker_messages import FromWorker, FromZygote, ToWorker, ToZygote

DEPTH_LIMIT = 64
"""How deep arguments and content may nest."""

_MEANINGLESS = (msgspec.DecodeError, RecursionError, OverflowError, UnicodeError)
_UNSAYABLE = (msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError, TypeError)
Heard = TypeVar("Heard")
Said = TypeVar("Said")


def _no_extensions(code: int, _data: memoryview) -> NoReturn:
    raise msgspec.ValidationError(f"msgpack extension type {code} has no meaning here")


class Codec(Generic[Said, Heard]):
    """One direction pair of a link: ``pack`` what we say (whole frame or line), ``unpack`` one body we heard."""

    __slots__ = ("_close", "_decoder", "_encoder")

    def __init__(self, encoder: Any, decoder: Any, close: Any) -> None:
        self._encoder, self._decoder, self._close = encoder, decoder, close

    def pack(self, message: Said) -> bytes:
        """The bytes to write. Raises LocalProtocolError for a value that the codec cannot express."""
        try:
            body: bytes = self._encoder.encode(message)
        except _UNSAYABLE as error:
            raise LocalProtocolError(f"a {type(message).__name__} cannot be encoded: {error}") from error
        packed: bytes = self._close(body)
        return packed

    def unpack(self, body: bytes) -> Heard:
        """The message in one frame or line. Raises RemoteProtocolError for anything that is none."""
        try:
            message: Heard = self._decoder.decode(body)
        except _MEANINGLESS as error:
            raise RemoteProtocolError(f"a message cannot be understood: {error}") from error
        return message


def _msgpack(heard: Any, close: Any) -> Codec[Any, Any]:
    return Codec(msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(heard, ext_hook=_no_extensions), close)


def _json(heard: Any) -> Codec[Any, Any]:
    return Codec(msgspec.json.Encoder(), msgspec.json.Decoder(heard), line)


def _bare(body: bytes) -> bytes:
    return body


def daemon_to_client(speaks_json: bool) -> Codec[FromDaemon, FromClient]:
    """The daemon's end of a client's connection."""
    return _json(FromClient) if speaks_json else _msgpack(FromClient, frame)


def client_to_daemon(speaks_json: bool = False) -> Codec[FromClient, FromDaemon]:
    """A client's end."""
    return _json(FromDaemon) if speaks_json else _msgpack(FromDaemon, frame)


def daemon_to_worker() -> Codec[ToWorker, FromWorker]:
    """The daemon's end of a worker's socket."""
    return _msgpack(FromWorker, frame)


def worker_to_daemon() -> Codec[FromWorker, ToWorker]:
    """A worker's end."""
    return _msgpack(ToWorker, frame)


def daemon_to_zygote() -> Codec[ToZygote, FromZygote]:
    """The daemon's end of the zygote's datagram socket: one message a datagram, no length."""
    return _msgpack(FromZygote, _bare)


def zygote_to_daemon() -> Codec[FromZygote, ToZygote]:
    """The zygote's end."""
    return _msgpack(ToZygote, _bare)


def too_deep(value: object, limit: int = DEPTH_LIMIT) -> bool:
    """Whether containers nest deeper than ``limit`` (a walk without recursion: the value is a stranger's)."""
    level = [value]
    for _ in range(limit):
        level = [
            item
            for box in level
            if isinstance(box, (dict, list))
            for item in (box.values() if isinstance(box, dict) else box)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True
