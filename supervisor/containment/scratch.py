"""A worker's directories on disk, made by the daemon before the worker exists:

w<N>/        0700
w<N>/out     standing output file of Python tools: the worker's descriptors 1 and 2, appended to
w<N>/tmp     mount point of the worker's tmpfs, its TMPDIR
w<N>/work    the work directory of its calls; a warm worker is used again only while this is as empty as it was
"""

from __future__ import annotations

import os

from supervisor.trees import remove_tree

PREFIX = "w"
_BLOCK_BYTES = 512
"""The unit of st_blocks, whatever the file system's own blocks are: inode(7)."""


class Scratch:
    """The directories of one worker. ``output`` is our own descriptor of the standing output file."""

    __slots__ = ("_mtime_ns", "output", "path", "work")

    def __init__(self, parent: str, worker: int) -> None:
        self.path = os.path.join(parent, f"{PREFIX}{worker}")
        self.work = os.path.join(self.path, "work")
        os.mkdir(self.path, 0o700)
        os.mkdir(os.path.join(self.path, "tmp"), 0o700)
        os.mkdir(self.work, 0o700)
        self.output = -1
        self.renew_output()
        self._mtime_ns = os.stat(self.work).st_mtime_ns

    @property
    def output_path(self) -> str:
        """Where the standing output file lies until a call adopts it."""
        return os.path.join(self.path, "out")

    def renew_output(self) -> None:
        """Make a new standing output file; the old one has been moved away by who adopted it. Raises OSError, and then
        the old descriptor is still what it was."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        fresh = os.open(self.output_path, flags, 0o600)
        self.close()
        self.output = fresh

    def output_bytes(self) -> int:
        """What the running call has printed."""
        return os.fstat(self.output).st_size

    def output_on_disk(self) -> int:
        """What its output file takes on the disk, which can be more than its size: fallocate(2) may keep that."""
        return os.fstat(self.output).st_blocks * _BLOCK_BYTES

    def work_touched(self) -> bool:
        """Whether anything was ever made in the work directory (a removed file counts: its name may be known)."""
        try:
            return os.stat(self.work).st_mtime_ns != self._mtime_ns
        except OSError:  # a tool has moved or removed it
            return True

    def work_is_empty(self) -> bool:
        """Whether the work directory holds nothing that is worth keeping. One that cannot be looked into may."""
        try:
            with os.scandir(self.work) as entries:
                return next(entries, None) is None
        except PermissionError:
            return False
        except OSError:  # a tool has moved or removed it
            return True

    def close(self) -> None:
        """Give up our descriptor; the directories stay."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1

    def remove(self) -> None:
        """Take the directories away. May walk a large tree: call it from a thread."""
        self.close()
        remove_tree(self.path)
