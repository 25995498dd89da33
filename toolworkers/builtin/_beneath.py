"""Paths of the file tools: resolved beneath the call's root (or a configured one), opened so that they stay there.

A path is resolved once, then opened component by component without following a link, so a directory that becomes a
link in between leads nowhere. Only regular files are ever opened: opening a FIFO would hang, a device may act.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from toolworkers._context import Context
from toolworkers._tools import ToolError

_CODES = {
    errno.ENOENT: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ENOTDIR: "not_a_directory",
    errno.EISDIR: "is_a_directory",
    errno.ELOOP: "symlink_loop",
    errno.ENAMETOOLONG: "name_too_long",
    errno.EROFS: "read_only_file_system",
}
"""What other arguments would cure. Everything else (ENOSPC, EIO …) is the tool's."""
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a symbolic link that was swapped in just now",
}
_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Place(NamedTuple):
    """A path that was found to lie beneath a root: as it was asked for, the real root, and the way from it."""

    asked: str
    root: str
    parts: tuple[str, ...]
    shown: str
    """As results name it: relative to the call's root where it lies beneath it, else absolute."""


def locate(ctx: Context, path: str) -> Place:
    """Where ``path`` leads. Raises ToolError: ``sandbox_denied`` outside of every root, ``bad_path`` for no path."""
    if not path or "\0" in path:
        raise ToolError(f"{path!r} is no path; allowed: text without NUL", code="bad_path", class_="argument")
    try:
        real = os.path.realpath(os.path.join(ctx.root, path))
        roots = [os.path.realpath(root) for root in (ctx.root, *ctx.roots)]
    except ValueError as error:
        raise ToolError(f"{path!r} is no path: {error}", code="bad_path", class_="argument") from error
    for root in roots:
        if os.path.commonpath((root, real)) == root:
            way = os.path.relpath(real, root)
            return Place(path, root, () if way == "." else tuple(way.split("/")), way if root == roots[0] else real)
    raise ToolError(
        f"{path!r} leads outside; allowed: what lies beneath {' or '.join(roots)}",
        code="sandbox_denied",
        class_="policy",
    )


@contextlib.contextmanager
def told_by(path: str) -> Iterator[None]:
    """Turn an OSError into a ToolError with the system's own text about ``path``."""
    try:
        yield
    except OSError as error:
        code = _CODES.get(error.errno or 0)
        text = f"[Errno {error.errno}] {error.strerror}: {path!r}"
        raise ToolError(text, code=code or "os_error", class_="argument" if code else "tool") from error


@contextlib.contextmanager
def open_parent(place: Place) -> Iterator[tuple[int, str]]:
    """An O_PATH descriptor of the directory that holds the place, and the place's name in it (``.`` for the root)."""
    descriptor = os.open(place.root, _WALK & ~os.O_NOFOLLOW)
    try:
        for part in place.parts[:-1]:
            inner = os.open(part, _WALK, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, place.parts[-1] if place.parts else "."
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_directory(place: Place) -> Iterator[int]:
    """A readable descriptor of a directory."""
    with open_parent(place) as (parent, name):
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_regular(place: Place) -> Iterator[BinaryIO]:
    """A regular file for reading. Raises OSError, or ToolError(code="not_a_file" or "is_a_directory") for all else."""
    with open_parent(place) as (parent, name):
        file = open_regular_at(parent, name, place.asked)
    with file:
        yield file


def open_regular_at(parent: int, name: str, shown: str) -> BinaryIO:
    """As `open_regular`, from a directory's descriptor; the caller closes the file."""
    refuse_irregular(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode, shown)
    descriptor = os.open(name, _READ, dir_fd=parent)
    try:
        refuse_irregular(os.fstat(descriptor).st_mode, shown)  # what was looked at and what was opened may differ
    except ToolError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def refuse_irregular(mode: int, shown: str) -> None:
    """Raise ToolError unless ``mode`` is a regular file's."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        code = "is_a_directory" if stat.S_ISDIR(mode) else "not_a_file"
        raise ToolError(f"{shown!r} is {kind}; allowed: a regular file", code=code, class_="argument")
