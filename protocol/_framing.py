"""Bytes ⇄ frames, for both codecs. The size is judged on the header, before a byte of the body is kept.

A frame is a 4-byte big-endian length and that many bytes (msgpack on our links). A line is JSON text ended by ``\\n``.
Buffers are fed what a read returned and yield whole frames; cut into single bytes or fed whole, the frames are the
same. An end of file inside a frame is a torn frame (`eof`): a lost peer, never data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from protocol._errors import RemoteProtocolError

FRAME_LIMIT = 1 << 20
"""What a client or worker may send in one frame unless the configuration says otherwise."""
FRAME_HARD_LIMIT = 16 << 20
"""What the configuration may raise it to."""
_HEADER = struct.Struct(">I")


def frame(body: bytes) -> bytes:
    """One frame around an encoded message."""
    return _HEADER.pack(len(body)) + body


def line(body: bytes) -> bytes:
    """One line around a message encoded as JSON (which never contains a raw newline)."""
    return body + b"\n"


class FrameBuffer:
    """Length-prefixed frames out of arbitrary cuts of a byte stream."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._buffer = bytearray()
        self._limit = limit

    @property
    def inside_frame(self) -> bool:
        """Whether a frame has begun and not ended (what a frame timeout watches)."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what was read; yield each frame that is now whole.

        Raises RemoteProtocolError on a header over the limit. Frames yielded before the bad header are good and were meant.
        """
        buffer = self._buffer
        buffer += data
        start, have = 0, len(buffer)
        try:
            while have - start >= 4:
                (size,) = _HEADER.unpack_from(buffer, start)
                if size > self._limit:
                    raise RemoteProtocolError(
                        f"a frame of {size} bytes was announced; at most {self._limit} are allowed"
                    )
                end = start + 4 + size
                if end > have:
                    break
                yield bytes(memoryview(buffer)[start + 4 : end])
                start = end
        finally:
            del buffer[:start]

    def eof(self) -> None:
        """The stream ended. Raises RemoteProtocolError when it ended inside a frame."""
        if self._buffer:
            raise RemoteProtocolError(f"the stream ended inside a frame, {len(self._buffer)} bytes after its start")


class LineBuffer:
    """JSON lines out of arbitrary cuts of a byte stream; blank lines are skipped, ``\\r\\n`` is accepted."""

    __slots__ = ("_buffer", "_limit", "_scanned")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._scanned = 0

    @property
    def inside_frame(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what was read; yield each whole line. Raises RemoteProtocolError on one over the limit."""
        buffer = self._buffer
        buffer += data
        while (end := buffer.find(b"\n", self._scanned)) >= 0:
            if end > self._limit:
                break
            text = bytes(buffer[:end]).strip()
            del buffer[: end + 1]
            self._scanned = 0
            if text:
                yield text
        if len(buffer) > self._limit:
            raise RemoteProtocolError(f"a line is longer than the {self._limit} bytes that are allowed")
        self._scanned = len(buffer)

    def eof(self) -> None:
        """The stream ended. Raises RemoteProtocolError when it ended inside a line."""
        if self._buffer.strip():
            raise RemoteProtocolError(f"the stream ended inside a line, {len(self._buffer)} bytes after its start")
