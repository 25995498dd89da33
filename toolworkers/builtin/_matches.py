"""What the two searchers agree on: where a search starts, what a match is, which files count."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

FILE_LIMIT = 16 << 20
"""Bytes of a file that is searched; larger ones are passed over."""
BINARY_WINDOW = 8 << 10
"""Bytes in which a NUL makes a file binary."""


class Start(NamedTuple):
    """A directory (a readable descriptor, or O_PATH when ``file`` is one file in it) and which paths are wanted."""

    directory: int
    file: str | None
    wanted: Callable[[str], bool]
    glob: str | None


class Match(NamedTuple):
    """One line. ``path`` from the start; ``line`` from 1; ``text`` as it stands, with U+FFFD for what is no UTF-8."""

    path: str
    line: int
    text: str


def looks_binary(data: bytes) -> bool:
    """A NUL near the beginning makes a file binary, for both searchers."""
    return b"\0" in data[:BINARY_WINDOW]
