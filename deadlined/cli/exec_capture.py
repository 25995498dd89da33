"""Captured output of ``deadlined exec``: pipes and raw files, what is still in a pipe after the end, writing it out.
(What of it a result shows is `exec_view`.)

Pid 1 of the call moves bytes while the call runs (`toolworkers/_oneshot.py`); what is left in a pipe after the kernel
has confirmed the end is drained here, because the kill may have come in between.
"""

from __future__ import annotations

import os

DEFAULT_LIMIT = 64 << 20
_PIPE_BYTES = 1 << 20
_CHUNK = 1 << 16


class Capture:
    """One captured stream. ``targets``: the command's descriptors that write to it. ``raw``: a file without a name."""

    __slots__ = ("name", "raw", "read_end", "targets", "write_end")

    def __init__(self, name: str, targets: tuple[int, ...]) -> None:
        self.name, self.targets = name, targets
        self.raw = _open_unnamed()
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        _widen(self.read_end)

    def size(self) -> int:
        """Bytes that reached the raw file."""
        return os.fstat(self.raw).st_size


def open_captures(in_one: bool) -> list[Capture]:
    """One pipe where stdout and stderr go to the same place (or ``in_one``), because two would lose their order; else
    one each. Raises OSError when there is no descriptor left."""
    if in_one or os.path.sameopenfile(1, 2):
        return [Capture("both", (1, 2))]
    return [Capture("stdout", (1,)), Capture("stderr", (2,))]


def drain(captures: list[Capture], limit: int) -> bool:
    """Move what is left in the pipes of a call that is over; True when there was more than ``limit`` in all."""
    room = limit - sum(capture.size() for capture in captures)
    over = False
    for capture in captures:
        while data := _read(capture.read_end):
            kept = data[: max(0, room)]
            over = over or len(kept) < len(data)
            room -= len(kept)
            if _write_all(capture.raw, kept):
                return over
    return over


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return b""  # a writer is left that the kernel could not end (D state); what it writes later is nobody's


def show(captures: list[Capture]) -> OSError | None:
    """Write what was captured where the command would have written it; returns why it was not all (closed pipe, full
    disk)."""
    lost = None
    for capture in captures:
        os.lseek(capture.raw, 0, os.SEEK_SET)
        while data := os.read(capture.raw, _CHUNK):
            if failed := _write_all(capture.targets[0], data):
                lost = failed
                break
    return lost


def _write_all(descriptor: int, data: bytes) -> OSError | None:
    """Why nobody can take it any more (closed pipe, full disk); None: it was taken."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait_writable(descriptor)
        except OSError as error:
            return error
    return None


def _wait_writable(descriptor: int) -> None:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()


def _open_unnamed() -> int:
    """On the disk of TMPDIR, without a name: nothing is left behind however we end. Memory where there is no disk."""
    flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
    try:
        return os.open(os.environ.get("TMPDIR") or "/tmp", flags, 0o600)  # noqa: S108  # O_TMPFILE: never a name in it
    except OSError:
        return os.memfd_create("deadlined-output")


def _widen(pipe: int) -> None:
    """A megabyte of pipe, where the user still has some: it lets a fast writer go on while pid 1 is not scheduled."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except PermissionError:
        return
