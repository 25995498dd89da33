"""Who is at the other end of a unix socket: uid, process, and whether that process belongs to a call.

SO_PEERCRED is the identity of who *connected* and may be handed on, so it decides by uid only. A tool is told from a
client by descent: every process of a call, orphans included, has the zygote among its ancestors, because each of its
namespaces' first processes adopts what loses its parent.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Container

_CREDENTIALS = struct.Struct("iII")
_DEEPEST = 256


class Peer:
    """One connected peer."""

    __slots__ = ("gid", "pid", "uid")

    def __init__(self, sock: socket.socket) -> None:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, self.uid, self.gid = _CREDENTIALS.unpack(raw)

    def belongs_to_call(self, zygotes: Container[int]) -> bool:
        """Whether the peer descends from a zygote. One that cannot be traced (it is gone) counts as if it did."""
        pid = self.pid
        for _ in range(_DEEPEST):
            if pid in zygotes:
                return True
            if pid <= 1:
                return False
            parent = _parent_of(pid)
            if parent is None:
                return True
            pid = parent
        return True


def _parent_of(pid: int) -> int | None:
    """The parent's number from /proc/PID/stat; the command name in it may hold spaces and parentheses (proc(5))."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
    return None
