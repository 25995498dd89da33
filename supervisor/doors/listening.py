"""The socket's place: one daemon per path, private by default. Owns what may lie there and what is done about it.

Only who holds the lock file beside the socket unlinks and binds it, so a second daemon cannot take the path from a
first one that lives. Unlinked is a stale socket and nothing else: one of ours to which a connection was refused. The
directory must be ours, a real directory, not writable for others, and nothing that others could replace. With exactly
one allowed group the socket is that group's too (0660), as is a directory that had to be made (0710); with several, the
operator arranges who may reach the socket.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator, Sequence

from supervisor.private import make_directories, masked, replaceable_by_others

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
    # Made before the lock, so that the kernel closes it before the lock (it does so by number): who gets the lock of
    # a daemon that was killed must find that nobody listens any more.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with listener, _locked(path + ".lock"):
        _bind(listener, path, gid)
        listener.listen(_BACKLOG)
        try:
            yield listener
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + ".lock")


def _check_directory(directory: str, gid: int | None) -> None:
    try:
        if not os.path.isdir(directory):
            make_directories(directory)
            if gid is not None:
                os.chown(directory, -1, gid)
                os.chmod(directory, 0o710)  # noqa: S103  # the group may pass through to the socket, not look around
        descriptor = os.open(directory, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise DoorError(f"the socket's directory {directory} cannot be used: {error.strerror}") from error
    try:
        found, open_above = os.fstat(descriptor), replaceable_by_others(directory)
    except OSError as error:
        raise DoorError(f"the socket's directory {directory} cannot be used: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if found.st_uid != os.geteuid():
        raise DoorError(f"the socket's directory {directory} belongs to uid {found.st_uid}, not to us")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise DoorError(f"the socket's directory {directory} may be written by others: chmod 700 it")
    if open_above is not None:
        raise DoorError(
            f"the socket's directory {directory} may be replaced by others: everybody may write {open_above}; choose"
            " another place, or chmod o-w that one"
        )


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DoorError(f"the lock file {path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _same_file(descriptor, path):  # its owner unlinked it between our open and our lock
            raise SocketTakenError(f"another daemon is just leaving {path}; try again")
        yield
    except BlockingIOError as error:
        raise SocketTakenError(f"another daemon owns {path.removesuffix('.lock')}") from error
    finally:
        os.close(descriptor)


def _same_file(descriptor: int, path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def _remove_stale(path: str) -> None:
    """Unlink a socket of a daemon that is dead. Raises DoorError for whatever else lies there; it is left alone."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if not stat.S_ISSOCK(found.st_mode):
            raise DoorError(f"{path} exists and is no socket but {_kind_of(found.st_mode)}; it is left alone")
        if found.st_uid != os.geteuid():
            raise DoorError(f"{path} is a socket of uid {found.st_uid}, not ours; it is left alone")
        _knock(path)
        os.unlink(path)


def _kind_of(mode: int) -> str:
    kinds = ((stat.S_ISREG, "a regular file"), (stat.S_ISDIR, "a directory"), (stat.S_ISLNK, "a symbolic link"))
    return next((word for is_kind, word in kinds if is_kind(mode)), "a FIFO or a device")


def _knock(path: str) -> None:
    """Return when nobody listens there, and never did since the last one died: only a refusal proves that (unix(7)).

    Raises SocketTakenError when somebody does, DoorError when the answer is another one.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            text = f"whether somebody listens at {path} cannot be told ({error.strerror}); it is left alone"
            raise DoorError(text) from error
    raise SocketTakenError(f"somebody who is no deadlined daemon of this version listens at {path}; it is left alone")


def _bind(listener: socket.socket, path: str, gid: int | None) -> None:
    try:
        _remove_stale(path)
    except OSError as error:
        raise DoorError(f"{path} is in the way and cannot be removed: {error.strerror}") from error
    try:
        with masked(0o077):  # bind(2) gives the mode that the umask leaves: no moment in which it is another one
            listener.bind(path)
        if gid is not None:  # one group is allowed in: connecting takes write permission (unix(7))
            os.chown(path, -1, gid)
            os.chmod(path, 0o660)
    except OSError as error:
        raise DoorError(f"the socket {path} cannot be made: {error.strerror}") from error
