"""The atomic replacement of a file: either the old bytes are there or all of the new ones, after a crash too.

A temporary file in the same directory, synced, renamed over the target, the directory synced (rename(2)). Owner and
mode of a file that was there stay; other names of it (hard links) keep the old bytes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from toolworkers.builtin._beneath import Place, open_parent, refuse_irregular

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(place: Place, data: bytes) -> bool:
    """Make ``data`` the content of the place; whether the file is new. Raises OSError, or ToolError for a non-file.

    A failure leaves the old file and no temporary one; a kill may leave a temporary ``.NAME.….tmp`` beside it.
    """
    with open_parent(place) as (parent, name):
        there = _stat(parent, name)
        if there is not None:
            refuse_irregular(there.st_mode, place.asked)
        with _temporary(parent, name) as (temporary, descriptor):
            _write_all(descriptor, data)
            if there is not None:
                _keep_owner_and_mode(descriptor, there)
            os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        _sync_directory(parent)
    return there is None


def _stat(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _temporary(parent: int, name: str) -> Iterator[tuple[str, int]]:
    # The name may be 255 bytes long already, so only a part of it goes into the temporary one.
    temporary = f".{name[:32]}.{os.urandom(6).hex()}.tmp"
    descriptor = os.open(temporary, _NEW, 0o666, dir_fd=parent)
    try:
        yield temporary, descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _keep_owner_and_mode(descriptor: int, there: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # a plain uid cannot give files away; the new file is then its own
        os.fchown(descriptor, there.st_uid, there.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(there.st_mode))  # after fchown, which clears setuid bits


def _sync_directory(parent: int) -> None:
    with contextlib.suppress(OSError):  # a directory may be writable and not readable; the rename holds all the same
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
