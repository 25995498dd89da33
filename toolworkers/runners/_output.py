"""A command's output on its way from the pipe into the raw file, by splice(2): no byte passes through Python.

Why a pipe and not the file itself as the command's stdout: ``>/dev/stderr`` and ``tee /dev/stderr`` would truncate the
file, seekable stdout corrupts some writers, and no limit could be held. Why not O_APPEND: splice(2) refuses it.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import select
import termios
from collections.abc import Sequence

_CHUNK_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The raw file takes no more. The command must not notice: the rest is counted and thrown away."""


class Stream:
    """One raw file with the read end of its pipe (and, until the spawn, the write end). Owns the three descriptors."""

    __slots__ = ("_offset", "_raw", "_sink", "ended", "read_end", "size", "write_end")

    def __init__(self, raw: int, read_end: int, write_end: int) -> None:
        self._raw, self.read_end, self.write_end = raw, read_end, write_end
        self._sink: int | None = None
        self._offset = 0
        self.size = 0
        self.ended = False

    def close_write_end(self) -> None:
        """The command has its copy; ours would keep the pipe from ever ending."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Close what is open."""
        self.close_write_end()
        for descriptor in (self._raw, self.read_end, self._sink):
            if descriptor is not None:
                os.close(descriptor)

    def move(self, most: int) -> bool:
        """Move up to ``most`` bytes; False when nothing was there (`ended`: nothing will be)."""
        try:
            moved = self._splice(min(most, _CHUNK_BYTES))
        except BlockingIOError:
            return False
        self.ended = moved == 0
        self.size += moved
        return moved > 0

    def lent(self) -> int:
        """The raw file itself, for what the tool's own code prints before there is a command. See `take_printed`."""
        return self._raw

    def take_printed(self) -> None:
        """What was printed into the raw file meanwhile stays, in front of what the command will write."""
        self._offset = self.size = os.lseek(self._raw, 0, os.SEEK_END)

    def waiting(self) -> int:
        """Bytes in the pipe."""
        count = array.array("i", [0])
        fcntl.ioctl(self.read_end, termios.FIONREAD, count)
        return count[0]

    def _splice(self, count: int) -> int:
        flags = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
        if self._sink is None:
            try:
                moved = os.splice(self.read_end, self._raw, count, offset_dst=self._offset, flags=flags)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._sink = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            else:
                self._offset += moved
                return moved
        return os.splice(self.read_end, self._sink, count, flags=flags)


class Output:
    """The one or two streams of a command under one limit. ``over``: the command wrote more than the limit."""

    def __init__(self, descriptors: Sequence[int], limit: int) -> None:
        self.streams = [Stream(*descriptors[at : at + 3]) for at in range(0, len(descriptors), 3)]
        self._limit = limit
        self.over = False

    @property
    def size(self) -> int:
        """Bytes that were taken from the pipes so far."""
        return sum(stream.size for stream in self.streams)

    @property
    def write_ends(self) -> tuple[int, int]:
        """What the command gets as its 1 and 2."""
        return self.streams[0].write_end, self.streams[-1].write_end

    @property
    def lent(self) -> tuple[int, int]:
        """What the tool's own code gets as its 1 and 2 until there is a command; then `take_printed`."""
        return self.streams[0].lent(), self.streams[-1].lent()

    def take_printed(self) -> None:
        """The tool's own code has come to its end."""
        for stream in self.streams:
            stream.take_printed()

    def close_write_ends(self) -> None:
        """After the spawn."""
        for stream in self.streams:
            stream.close_write_end()

    def watch(self, poll: select.poll) -> None:
        """Let a poll report when there is something to take."""
        for stream in self.streams:
            poll.register(stream.read_end, select.POLLIN)

    def take(self, descriptor: int, poll: select.poll) -> None:
        """One chunk of the stream that a poll reported; a stream that has ended is not polled again."""
        stream = next(stream for stream in self.streams if stream.read_end == descriptor)
        self._take(stream)
        if stream.ended:
            poll.unregister(descriptor)

    def take_rest(self) -> None:
        """Everything that is in the pipes now: when every writer is dead, everything there will ever be."""
        for stream in self.streams:
            while not stream.ended and not self.over and self._take(stream):
                pass

    def _take(self, stream: Stream) -> bool:
        room = self._limit - self.size
        if room > 0:
            return stream.move(room)
        # Exactly the limit is allowed: one byte more that waits is too much, an end of file is not.
        self.over = stream.waiting() > 0
        stream.ended = not self.over
        return False

    def close(self) -> None:
        """Give up every descriptor. The daemon holds duplicates of the raw files and read ends."""
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.close()
