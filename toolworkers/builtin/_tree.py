"""The files beneath a directory, in one order that list and search share: by name within each directory, bytewise, a
directory's files where the directory stands.

Links are not followed, so a walk cannot leave its root or go round; directories are opened by descriptor for the
same reason. Hidden and ignored files count: an answer that hangs on an ignore file somewhere above would not be the
same everywhere. What is bulk by its name (`PASSED_OVER`) is left out unless the walk starts in it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import NamedTuple

PASSED_OVER = (".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules")
"""Names of directories (and files: a worktree's ``.git``) that nobody looks for by content."""
DEPTH_LIMIT = 100
"""Directories below the start that a walk enters: one descriptor is open for each."""


class Found(NamedTuple):
    """A regular file: its path from the start of the walk, and its name in the directory ``parent`` (a descriptor,
    open until the walk goes on)."""

    path: str
    name: str
    parent: int


def walk(start: int, prefix: str = "", depth: int = DEPTH_LIMIT) -> Generator[Found, None, None]:
    """Every regular file beneath the directory ``start`` (a readable descriptor). What cannot be opened is left out."""
    for entry in sorted(_entries(start), key=lambda entry: os.fsencode(entry.name)):
        if entry.name in PASSED_OVER:
            continue
        if entry.is_file(follow_symlinks=False):
            yield Found(prefix + entry.name, entry.name, start)
        elif entry.is_dir(follow_symlinks=False) and depth > 1:
            yield from _walk_inner(start, entry.name, prefix, depth)


def _entries(directory: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _walk_inner(start: int, name: str, prefix: str, depth: int) -> Generator[Found, None, None]:
    try:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=start)
    except OSError:
        return
    try:
        yield from walk(inner, f"{prefix}{name}/", depth - 1)
    finally:
        os.close(inner)


def shown(path: str) -> str:
    """A path that text can carry: bytes that are no UTF-8 become U+FFFD."""
    return os.fsencode(path).decode(errors="replace")
