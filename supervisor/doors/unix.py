"""The unix socket: one daemon per path, private by default, closed to the daemon's own tools.

Only who holds the lock file beside the socket unlinks and binds it, so a second daemon cannot take the path from a
first one that lives, and a stale socket of a dead one is no obstacle. The directory must be ours, a real directory and
not writable for others. With exactly one allowed group the socket is that group's too (0660), as is a directory that
had to be made (0710); with several, the operator arranges who may reach the socket.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import trio

from supervisor.desk import Desk
from supervisor.doors.connection import Connection, DoorLimits
from supervisor.doors.peers import Peer

_BACKLOG = 128
_LONGEST_PATH = 107


class DoorError(Exception):
    """The door cannot be opened; the text says why and what to do."""


class SocketTakenError(DoorError):
    """Another daemon owns the socket."""


@contextlib.contextmanager
def open_socket(path: str, allow_gids: Sequence[int] = ()) -> Iterator[socket.socket]:
    """A listening socket at ``path``; leaving unlinks it and unlocks. Raises DoorError, SocketTakenError."""
    encoded = os.fsencode(path)
    if len(encoded) > _LONGEST_PATH or b"\0" in encoded:
        raise DoorError(f"the socket path has {len(encoded)} bytes; at most {_LONGEST_PATH} are possible (unix(7))")
    directory = os.path.dirname(os.path.abspath(path))
    gid = allow_gids[0] if len(allow_gids) == 1 else None
    _check_directory(directory, gid)
    with _locked(path + ".lock") as lock:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with listener:
            _bind(listener, path, gid)
            listener.listen(_BACKLOG)
            try:
                yield listener
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + ".lock")
        assert lock >= 0


def _check_directory(directory: str, gid: int | None) -> None:
    try:
        if not os.path.isdir(directory):
            os.makedirs(directory, mode=0o700)
            if gid is not None:
                os.chown(directory, -1, gid)
                os.chmod(directory, 0o710)  # noqa: S103  # the group may pass through to the socket, not look around
        descriptor = os.open(directory, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise DoorError(f"the socket's directory {directory} cannot be used: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if found.st_uid != os.geteuid():
        raise DoorError(f"the socket's directory {directory} belongs to uid {found.st_uid}, not to us")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise DoorError(f"the socket's directory {directory} may be written by others: chmod 700 it")


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DoorError(f"the lock file {path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _same_file(descriptor, path):  # its owner unlinked it between our open and our lock
            raise SocketTakenError(f"another daemon is just leaving {path}; try again")
        yield descriptor
    except BlockingIOError as error:
        raise SocketTakenError(f"another daemon owns {path.removesuffix('.lock')}") from error
    finally:
        os.close(descriptor)


def _same_file(descriptor: int, path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def _bind(listener: socket.socket, path: str, gid: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DoorError(f"{path} exists and is no socket; it is left alone")
        os.unlink(path)
    before = os.umask(0o077)
    try:
        listener.bind(path)
        if gid is not None:  # one group is allowed in: connecting takes write permission (unix(7))
            os.chown(path, -1, gid)
            os.chmod(path, 0o660)
    except OSError as error:
        raise DoorError(f"the socket {path} cannot be made: {error.strerror}") from error
    finally:
        os.umask(before)


class UnixDoor:
    """Accepts clients. ``zygotes`` tells the processes whose descendants are tools, and are refused."""

    def __init__(
        self,
        desk: Desk,
        limits: DoorLimits,
        zygotes: Callable[[], set[int]],
    ) -> None:
        self._desk, self._limits, self._zygotes = desk, limits, zygotes
        self._connections: set[Connection] = set()
        self._by_uid: Counter[int] = Counter()
        self.refused = 0

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled; then every connection ends, and with it the calls attached to it."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(listener)
                try:
                    sock, _ = listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                        raise
                    await trio.sleep(0.05)  # no descriptor is free: who waits in the backlog is served a little later
                    continue
                self._admit(sock, nursery)

    def _admit(self, sock: socket.socket, nursery: trio.Nursery) -> None:
        sock.setblocking(False)
        peer = Peer(sock)
        if self._unwelcome(peer):
            self.refused += 1
            sock.close()
            return
        nursery.start_soon(self._serve, sock, peer.uid)

    def _unwelcome(self, peer: Peer) -> bool:
        own = os.geteuid()
        limits = self._limits
        if peer.uid not in (own, 0) and peer.gid not in limits.allow_gids:
            return True
        if peer.belongs_to_call(self._zygotes()):
            return True
        share = limits.clients if peer.uid == own else limits.clients_of_another_uid
        waiting = sum(not connection.greeted for connection in self._connections)
        full = len(self._connections) >= limits.clients or self._by_uid[peer.uid] >= share
        return full or waiting >= limits.clients_without_hello

    async def _serve(self, sock: socket.socket, uid: int) -> None:
        connection = Connection(sock, uid, self._desk, self._limits)
        self._connections.add(connection)
        self._by_uid[uid] += 1
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self._by_uid[uid] -= 1
