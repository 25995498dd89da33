"""Bytes ⇄ frames, for both codecs. The size is judged on the header, before a byte of the body is waited for.

A frame is a 4-byte big-endian length and that many bytes (msgpack on our links). A line is JSON text ended by ``\\n``.
Buffers are fed what a read returned and yield whole frames; cut into single bytes or fed whole, the frames are the
same. An end of file inside a frame is a torn frame (`eof`): a lost peer, never data.

A buffer never holds more than one unfinished frame, at most its limit, and what one read added to it. One that has
raised has dropped what it held and raises the same again: behind a bad header nothing can be found.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from protocol._errors import LocalProtocolError, RemoteProtocolError

FRAME_LIMIT = 1 << 20
"""What a client or worker may send in one frame unless the configuration says otherwise."""
FRAME_HARD_LIMIT = 16 << 20
"""What the configuration may raise it to, and what a client must be ready to read: a result is larger than the frame
of the worker that it came from (JSON writes one byte of text as up to six)."""
FRAME_OVERHEAD = 64 << 10
"""What the daemon may add around what it passes on: a frame of the hard limit must still reach the worker."""
_LARGEST = FRAME_HARD_LIMIT + FRAME_OVERHEAD
_HEADER = struct.Struct(">I")
_BLANK = b" \t\r"


def frame(body: bytes) -> bytes:
    """One frame around an encoded message. Raises LocalProtocolError for one that no peer would take."""
    if len(body) > _LARGEST:
        raise LocalProtocolError(f"a frame of {len(body)} bytes; no peer takes more than {_LARGEST}")
    return _HEADER.pack(len(body)) + body


def line(body: bytes) -> bytes:
    """One line around a message encoded as JSON (which never contains a raw newline). Raises as `frame` does."""
    if len(body) > _LARGEST:
        raise LocalProtocolError(f"a line of {len(body)} bytes; no peer takes more than {_LARGEST}")
    return body + b"\n"


def speaks_json(first_byte: int) -> bool:
    """Whether a connection that begins with this byte speaks JSON lines. A frame cannot: ``{`` as the top byte of a
    length announces 2 GiB."""
    return first_byte == 0x7B


class _Buffer:
    """What both kinds of buffer share: the unfinished frame, its limit, and the fault that ended the stream."""

    __slots__ = ("_buffer", "_fault", "_limit")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        if not 1 <= limit <= _LARGEST:
            raise ValueError(f"a frame limit of {limit} bytes; allowed is 1 to {_LARGEST}")
        self._buffer = bytearray()
        self._limit = limit
        self._fault: str | None = None

    @property
    def inside_frame(self) -> bool:
        """Whether a frame has begun and not ended (what a frame timeout watches)."""
        return bool(self._buffer)

    def _take(self, data: bytes) -> bytearray:
        if self._fault is not None:
            raise RemoteProtocolError(self._fault)
        self._buffer += data
        return self._buffer

    def _broken(self, fault: str) -> RemoteProtocolError:
        self._fault = fault
        self._buffer = bytearray()  # not cleared in place: a caller's traceback may still look at the old one
        return RemoteProtocolError(fault)


class FrameBuffer(_Buffer):
    """Length-prefixed frames out of arbitrary cuts of a byte stream."""

    __slots__ = ()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what was read; yield each frame that is now whole. Nothing happens before the first ``next``.

        Raises RemoteProtocolError on a header over the limit: frames yielded before it are good and were meant. A
        caller that stops half-way has consumed what it was given; the rest comes with the next feed.
        """
        buffer = self._take(data)
        start, have = 0, len(buffer)
        try:
            while have - start >= 4:
                (size,) = _HEADER.unpack_from(buffer, start)
                if size > self._limit:
                    raise self._broken(f"a frame of {size} bytes was announced; at most {self._limit} are allowed")
                begin = start + 4
                if begin + size > have:
                    return
                start = begin + size  # before the yield: a caller that never comes back must not get it twice
                yield bytes(memoryview(buffer)[begin:start])
        finally:
            del buffer[:start]

    def eof(self) -> None:
        """The stream ended. Raises RemoteProtocolError when it ended inside a frame."""
        if self._buffer:
            raise RemoteProtocolError(f"the stream ended inside a frame, {len(self._buffer)} bytes after its start")


class LineBuffer(_Buffer):
    """JSON lines out of arbitrary cuts of a byte stream; blank lines are skipped, ``\\r\\n`` is accepted."""

    __slots__ = ("_scanned",)

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        super().__init__(limit)
        self._scanned = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what was read; yield each whole line. Raises RemoteProtocolError on one over the limit, as soon as so
        many bytes have come. Otherwise as `FrameBuffer.feed`."""
        buffer = self._take(data)
        start, scanned = 0, self._scanned
        try:
            while (end := buffer.find(b"\n", scanned)) >= 0:
                if end - start > self._limit:
                    break
                text = bytes(memoryview(buffer)[start:end]).strip(_BLANK)
                start = scanned = end + 1
                if text:
                    yield text
            else:
                scanned = len(buffer)
            if len(buffer) - start > self._limit:
                raise self._broken(f"a line is longer than the {self._limit} bytes that are allowed")
        finally:
            del buffer[:start]
            self._scanned = scanned - start

    def eof(self) -> None:
        """The stream ended. Raises RemoteProtocolError when it ended inside a line."""
        if self._buffer.strip(_BLANK):
            raise RemoteProtocolError(f"the stream ended inside a line, {len(self._buffer)} bytes after its start")
