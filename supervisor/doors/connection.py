"""One client's connection: bytes in, messages to the desk, answers out. Decides nothing about calls.

The first byte chooses the codec: ``{`` means JSON lines, anything else a length-prefixed msgpack frame. Hello must come
within 5 s and a frame that has begun must end within 10 s; a client that does not read is cut when 1 MiB waits for it.
Whatever is wrong with what a client sends ends that client's connection, after an answer that says what was wrong.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
import trio

from protocol import _client_messages as cm
from protocol import _codecs as codecs
from protocol._errors import LocalProtocolError, RemoteProtocolError
from protocol._framing import FrameBuffer, LineBuffer
from protocol._links import ClientLink, ClientState, Speaker
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Reason, Status
from supervisor.desk import Desk
from supervisor.live_call import LiveCall

_LOG = structlog.get_logger("deadlined.door")
_READ = 65_536
_GOODBYE_S = 1.0
_GOODBYE_READS = 512
_JSON = codecs.daemon_to_client(speaks_json=True)
_MSGPACK = codecs.daemon_to_client(speaks_json=False)


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Bounds of a door and of each connection; sizes in bytes, times in seconds."""

    frame: int = 1 << 20
    unsent: int = 1 << 20
    hello_s: float = 5.0
    frame_s: float = 10.0
    clients: int = 256
    clients_of_another_uid: int = 128
    clients_without_hello: int = 32
    allow_gids: frozenset[int] = frozenset()


class Connection:
    """Serve one client until it leaves, breaks the protocol, or is cut. ``attached``: calls that end with it."""

    def __init__(self, sock: socket.socket, uid: int, desk: Desk, limits: DoorLimits) -> None:
        self.uid = uid
        self.attached: dict[int, LiveCall] = {}
        self.awaited: dict[int, LiveCall] = {}
        self._socket, self._desk, self._limits = sock, desk, limits
        self._link = ClientLink(Speaker.DAEMON)
        self._codec = _MSGPACK
        self._buffer: FrameBuffer | LineBuffer = FrameBuffer(limits.frame)
        self._codec_known = False
        self._unsent = bytearray()
        self._writing = trio.Event()
        self._open = True
        self._patience = trio.current_time() + limits.hello_s
        """Until when what has begun (the connection, then a frame) must be whole. No byte that comes moves it."""

    @property
    def greeted(self) -> bool:
        """Whether Hello has been answered."""
        return self._link.state is ClientState.READY

    async def serve(self) -> None:
        """Read and answer until the end; then end the calls that were attached. Closes the socket."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._converse()
                nursery.cancel_scope.cancel()
        finally:
            self._close()

    async def _converse(self) -> None:
        try:
            await self._read_all()
        except Exception:  # noqa: BLE001  # the boundary to a client: no message may end the daemon; logged, answered
            _LOG.exception("supervisor_bug", uid=self.uid)
            self._refuse_and_end("internal error; the daemon's log has it", ErrorClass.BUG, "supervisor_bug")
        await self._say_goodbye()

    # ------------------------------------------------------------ in

    async def _read_all(self) -> None:
        try:
            while self._open and self._link.state is not ClientState.CLOSED:
                if self._link.state is ClientState.READY and not self._buffer.inside_frame:
                    # Between two requests, where a client may think for ever: no timer for each of them.
                    await trio.lowlevel.wait_readable(self._socket)
                else:
                    await self._wait_patiently()
                if not self._read_once():
                    return
        except RemoteProtocolError as error:
            self._refuse_and_end(str(error))
        except (OSError, trio.ClosedResourceError):
            return

    async def _wait_patiently(self) -> None:
        """Wait for bytes, as long as a client may let us wait. Raises RemoteProtocolError when that is over."""
        with trio.CancelScope(deadline=self._patience) as patience:
            await trio.lowlevel.wait_readable(self._socket)
        if patience.cancelled_caught:
            raise RemoteProtocolError(self._impatience())

    def _impatience(self) -> str:
        if not self.greeted:
            return f"no hello within {self._limits.hello_s:g} s"
        return f"a frame was begun and not ended within {self._limits.frame_s:g} s"

    def _read_once(self) -> bool:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return True
        if not self._codec_known and data:
            self._choose_codec(data[:1])
        begun = self._buffer.inside_frame
        for body in self._buffer.feed(data):
            begun = False
            message = self._codec.unpack(body)
            if self._link.hear(message):
                self._desk.take(self, message)
            if not self._open:  # cut over an answer: the rest of what it asked is answered to nobody
                return False
        if not begun and self._buffer.inside_frame and self.greeted:
            self._patience = trio.current_time() + self._limits.frame_s
        return bool(data)

    def _choose_codec(self, first: bytes) -> None:
        self._codec_known = True
        if first == b"{":
            self._codec = _JSON
            self._buffer = LineBuffer(self._limits.frame)

    # ------------------------------------------------------------ out

    def say(self, message: cm.FromDaemon) -> None:
        """Send without waiting; what the socket does not take is queued, and a client that lets 1 MiB wait is cut."""
        if not self._open:
            return
        try:
            data = self._codec.pack(message)
        except LocalProtocolError as error:  # a tool's content that this codec cannot express
            message = _unsayable(message, error)
            data = self._codec.pack(message)
        try:
            self._link.say(message)
        except LocalProtocolError as error:  # a bug of ours must not cost anybody but this client its connection
            _LOG.error("said_out_of_turn", error=str(error))
            self._cut()
            return
        if self._unsent:
            self._queue(data)
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._open = False
            return
        if sent < len(data):
            self._queue(data[sent:])

    def settled(self, request: int, result: CallResult) -> None:
        """A watched call has settled."""
        if self.attached.pop(request, None) is None:
            self.awaited.pop(request, None)
        self.say(cm.Settled(request, result))

    def _queue(self, data: bytes) -> None:
        if len(self._unsent) > self._limits.unsent:
            self._cut()
            return
        self._unsent += data
        self._writing.set()

    def _cut(self) -> None:
        self._open = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def _write(self) -> None:
        while True:
            await self._writing.wait()
            while self._unsent:
                await trio.lowlevel.wait_writable(self._socket)
                try:
                    del self._unsent[: self._socket.send(self._unsent)]
                except BlockingIOError:
                    continue
                except OSError:
                    self._open = False
                    return
            self._writing = trio.Event()

    # ------------------------------------------------------------ end

    def _refuse_and_end(self, why: str, class_: ErrorClass = ErrorClass.ARGUMENT, code: str = "protocol_error") -> None:
        self.say(cm.Failed(None, ErrorInfo(class_, code, why)))

    async def _say_goodbye(self) -> None:
        """Give what is queued a moment to leave, and read on into nothing: closing a socket over unread bytes would
        reset it (unix(7)), and the reason of the end would be lost with it."""
        with trio.move_on_after(_GOODBYE_S), contextlib.suppress(OSError):
            while self._unsent and self._open:
                await trio.sleep(0.005)
            self._socket.shutdown(socket.SHUT_WR)
            await self._discard()

    async def _discard(self) -> None:
        for _ in range(_GOODBYE_READS):
            await trio.lowlevel.wait_readable(self._socket)
            with contextlib.suppress(BlockingIOError):
                if not self._socket.recv(_READ):
                    return

    def _close(self) -> None:
        self._open = False
        self._desk.left(self)
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


def _unsayable(message: Any, error: Exception) -> cm.FromDaemon:
    if isinstance(message, cm.Settled):
        # A copy: other readers, whose codec can express the content, hear the result as it is.
        told = msgspec.structs.replace(
            message.result,
            content=None,
            status=Status.CRASHED,
            reason=Reason.PROTOCOL_ERROR,
            error=ErrorInfo(ErrorClass.TOOL, "content", str(error)),
        )
        return cm.Settled(message.id, told)
    return cm.Failed(getattr(message, "id", None), ErrorInfo(ErrorClass.BUG, "unsayable", str(error)))
