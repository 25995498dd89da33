"""Raw outputs of calls as files: what a program wrote, byte for byte, before any view or cap of a context.

A command's output goes pipe → raw file by splice in its own worker, never through the daemon; the daemon keeps a
duplicate of the read end and drains the rest after the confirmed death, so nothing that reached the pipe is lost. A
Python tool prints into its worker's standing file, which a call that printed adopts.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import stat
import termios
from collections.abc import Iterator, Sequence

from protocol._deadlines import NS_PER_MS
from supervisor.core.shelf import Kept
from supervisor.trees import remove_tree

PIPE_BYTES = 1 << 20
PIPE_BYTES_CROWDED = 256 << 10
CROWD = 32
EDGE_BYTES = 256 << 10
"""How much of each end of a raw file a view is made from: the bound on our own work."""
_DRAIN_BYTES = 1 << 20
_MOST_WEIGHED = 100_000
"""Files of a kept work directory that are weighed: who left more has left enough to be judged by."""


class Stream:
    """One raw file being written by a command's worker; ``name`` is ``both``, ``stdout`` or ``stderr``."""

    __slots__ = ("name", "path", "raw", "read_end", "write_end")

    def __init__(self, name: str, path: str, pipe_bytes: int) -> None:
        self.name, self.path = name, path
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        try:
            # Not O_APPEND: splice(2) refuses it.
            self.raw = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            os.close(self.read_end)
            os.close(self.write_end)
            raise
        os.set_blocking(self.read_end, False)
        with contextlib.suppress(PermissionError):  # a plain uid gets 64 large pipes, then the default ones
            fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, pipe_bytes)

    def passed(self) -> tuple[int, int, int]:
        """The descriptors that go with a Call frame."""
        return self.raw, self.read_end, self.write_end

    def handed_over(self) -> None:
        """The worker has the write end: ours would keep the pipe open for ever."""
        os.close(self.write_end)
        self.write_end = -1

    def waiting(self) -> int:
        """Bytes that are still in the pipe."""
        found = array.array("i", [0])
        fcntl.ioctl(self.read_end, termios.FIONREAD, found)
        return found[0]

    def size(self) -> int:
        """Bytes in the raw file."""
        return os.fstat(self.raw).st_size

    def drain(self, most: int) -> int:
        """After the confirmed death: move what is still in the pipe; how much that was. A large rest wants a thread."""
        size, moved = self.size(), 0
        with contextlib.suppress(OSError):  # nothing there, or a full disk: what is in the file stays worth having
            while moved < most:
                more = os.splice(self.read_end, self.raw, min(_DRAIN_BYTES, most - moved), offset_dst=size + moved)
                if not more:
                    break
                moved += more
        return moved

    def close(self) -> None:
        """Close all that is ours."""
        for descriptor in (self.raw, self.read_end, self.write_end):
            if descriptor >= 0:
                os.close(descriptor)
        self.raw = self.read_end = self.write_end = -1


class OutputStore:
    """The directory of raw outputs and of work directories that were kept."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._open_streams = 0

    def open_streams(self, call: str, split: bool) -> list[Stream]:
        """Raw file and pipe of a command about to start: one for both streams (their order is kept), or two."""
        crowded = self._open_streams >= CROWD
        names = ("stdout", "stderr") if split else ("both",)
        streams: list[Stream] = []
        try:
            for name in names:
                streams.append(Stream(name, self._path(call, name), PIPE_BYTES_CROWDED if crowded else PIPE_BYTES))
        except OSError:
            for stream in streams:
                stream.close()
            raise
        self._open_streams += len(streams)
        return streams

    def close_streams(self, streams: list[Stream]) -> None:
        """The call has settled."""
        self._open_streams -= len(streams)
        for stream in streams:
            stream.close()

    def adopt(self, standing: str, call: str) -> str:
        """A Python call that printed takes its worker's standing file; its new path."""
        path = self._path(call, "both")
        os.rename(standing, path)
        return path

    def keep_work(self, work: str, call: str) -> str:
        """Keep the work directory of a call that did not end well; its new path."""
        path = self._path(call, "work")
        os.rename(work, path)
        return path

    def found(self, now_ns: int, wall_ms: int) -> list[Kept]:
        """What lies there, since when by the clock of this life. (A file's stamp is wall time: only a guess at an age.)
        May take long: call it from a thread."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # removed meanwhile
                    age_ms = max(0, wall_ms - int(entry.stat(follow_symlinks=False).st_mtime * 1_000))
                    found.append(Kept(entry.path, self.weigh(entry.path), now_ns - age_ms * NS_PER_MS))
        return found

    def weigh(self, path: str) -> int:
        """Bytes of a file, or of all files of a tree as far as one can look. Walks a tree: call it from a thread."""
        if os.path.islink(path) or not os.path.isdir(path):
            with contextlib.suppress(OSError):
                return os.lstat(path).st_size
            return 0
        return sum(itertools.islice(_sizes(path), _MOST_WEIGHED))

    def discard(self, path: str) -> None:
        """Remove one output or kept directory. May walk a tree: call it from a thread."""
        remove_tree(path)

    def _path(self, call: str, name: str) -> str:
        return os.path.join(self.directory, f"{call}.{name}")


def drain(streams: Sequence[Stream], limit: int) -> None:
    """What is still in a dead call's pipes goes to its raw files, as far as the ``limit`` of all together allows."""
    room = limit - sum(stream.size() for stream in streams)
    for stream in streams:
        room -= stream.drain(room)


def edges(path: str) -> tuple[bytes, bytes, int]:
    """(first bytes, last bytes, size) of a raw file, each end at most ``EDGE_BYTES``; the last are empty when the first
    are all."""
    descriptor = _open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if size <= 2 * EDGE_BYTES:
            return _read_at(descriptor, 0, size), b"", size
        return _read_at(descriptor, 0, EDGE_BYTES), _read_at(descriptor, size - EDGE_BYTES, EDGE_BYTES), size
    finally:
        os.close(descriptor)


def line_ends(path: str) -> int:
    """Newlines in a raw file. Blocks for about 1 ms a MiB, with the GIL held for a quarter of one at a time."""
    descriptor = _open_regular(path)
    try:
        return sum(piece.count(b"\n") for piece in _pieces(descriptor, 0, os.fstat(descriptor).st_size))
    finally:
        os.close(descriptor)


def read_range(path: str, offset: int, limit: int) -> bytes:
    """Raw bytes for a reader that follows an output; empty past the end, and when no such file is there any more."""
    try:
        descriptor = _open_regular(path)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)


def _open_regular(path: str) -> int:
    """A descriptor to read from. Raises OSError for all but a regular file: these lie where tools of our uid may write,
    and the open of a FIFO that one of them has put in a file's place would block the daemon for ever (fifo(7))."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file any more")
    return descriptor


def digest_of(path: str) -> str | None:
    """SHA-256 of a raw file; None when it is none any more. 1 to 3 ms a MiB, without the GIL: call it from a thread."""
    try:
        descriptor = _open_regular(path)
    except OSError:
        return None
    with open(descriptor, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sizes(directory: str) -> Iterator[int]:
    """Of what is below a directory, links themselves included. Not by os.walk, which recurses: a tree may be deeper
    than Python can; where a path becomes too long for the kernel nobody looks any further."""
    pending = [directory]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry.stat(follow_symlinks=False).st_size


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    return b"".join(_pieces(descriptor, offset, size))


def _pieces(descriptor: int, offset: int, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := os.pread(descriptor, min(size, EDGE_BYTES), offset)):
        yield piece
        offset += len(piece)
        size -= len(piece)
