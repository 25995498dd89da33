"""A worker's one socket to the daemon: frames both ways, descriptors with the frame that carries them.

Owns the bytes and the order; who may say what when is `protocol._links`. Every failure here means that the daemon is
gone, or that a tool has closed or used the descriptor: `ChannelLost`, and the worker has nothing left to live for.
"""

from __future__ import annotations

import array
import os
import select
import socket
from collections import deque

from protocol._codecs import worker_to_daemon
from protocol._errors import ProtocolError
from protocol._framing import FRAME_HARD_LIMIT, FrameBuffer
from protocol._links import Speaker, WorkerLink
from protocol._worker_messages import Call, FromWorker

_READ_BYTES = 16_384
_INT_BYTES = array.array("i").itemsize
_DESCRIPTORS = 8
"""More than any Call carries (six: two streams); what a message brings beyond them the kernel drops and closes."""
_SPACE = socket.CMSG_SPACE(_DESCRIPTORS * _INT_BYTES)
_codec = worker_to_daemon()
"""Made once, in the zygote: making it in each worker touches two hundred pages, a millisecond of copying."""


class ChannelLost(Exception):  # noqa: N818  # said as the event it is
    """The socket has ended, broken, or said what it may not: nothing can be told to the daemon any more."""


class Channel:
    """Blocking; one call at a time, as the link's table has it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)
        self._inode = os.fstat(descriptor).st_ino
        self._link = WorkerLink(Speaker.WORKER)
        self._buffer = FrameBuffer(FRAME_HARD_LIMIT)
        self._frames: deque[bytes] = deque()
        self._descriptors: deque[int] = deque()
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def fileno(self) -> int:
        """The descriptor, for those who poll it for the daemon's end."""
        return self._socket.fileno()

    def receive(self) -> tuple[Call, list[int]]:
        """Wait for the next Call and its descriptors, which are the caller's from here on. Raises ChannelLost."""
        try:
            while not self._frames:
                self._read()
            call = _codec.unpack(self._frames.popleft())
            self._link.hear(call)
        except (OSError, ProtocolError) as error:
            raise ChannelLost(str(error)) from error
        if call.fds > len(self._descriptors):
            raise ChannelLost(f"a call announced {call.fds} descriptors and {len(self._descriptors)} came")
        return call, [self._descriptors.popleft() for _ in range(call.fds)]

    def _read(self) -> None:
        data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, _SPACE, socket.MSG_CMSG_CLOEXEC)
        for _, _, packed in ancillary:
            came = array.array("i")
            came.frombytes(packed[: len(packed) - len(packed) % _INT_BYTES])
            self._descriptors.extend(came)
        if not data:
            raise ChannelLost("the daemon has closed the socket")
        self._frames.extend(self._buffer.feed(data))

    def pack(self, message: FromWorker) -> bytes:
        """The frame of a message. Raises LocalProtocolError for a value that no frame can carry."""
        return _codec.pack(message)

    def send(self, message: FromWorker, packed: bytes | None = None) -> None:
        """Say ``message`` (``packed``: its frame, where the caller had to pack it first). Raises ChannelLost."""
        frame = self.pack(message) if packed is None else packed
        self._link.say(message)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise ChannelLost(str(error)) from error

    def send_if_room(self, message: FromWorker) -> None:
        """Say something that may be dropped: while the daemon does not read, no tool waits for it.

        A unix socket is writable while half its buffer is free, so a small frame goes out whole or not at all.
        """
        if self._writable.poll(0) == [(self._socket.fileno(), select.POLLOUT)]:
            self.send(message)

    def is_whole(self) -> bool:
        """Whether the descriptor is still the socket that it was in the beginning."""
        try:
            return os.fstat(self._socket.fileno()).st_ino == self._inode
        except OSError:
            return False
