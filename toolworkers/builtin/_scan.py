"""The search in Python: the reference that ripgrep's answers must equal. A pattern that explodes ends at the call's
deadline like everything else."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator

from toolworkers._tools import ToolError
from toolworkers.builtin._beneath import open_regular_at
from toolworkers.builtin._matches import FILE_LIMIT, Match, Start, looks_binary
from toolworkers.builtin._tree import Found, walk


def scan(pattern: re.Pattern[str], start: Start) -> Generator[Match, None, None]:
    """Matching lines in order of path and line. Files that cannot be read are passed over."""
    with contextlib.closing(_files(start)) as files:
        for found in files:
            if start.wanted(found.path):
                yield from _lines(pattern, found)


def _files(start: Start) -> Generator[Found, None, None]:
    if start.file is None:
        yield from walk(start.directory)
    else:
        yield Found(start.file, start.file, start.directory)


def _lines(pattern: re.Pattern[str], found: Found) -> Iterator[Match]:
    data = _whole(found)
    if not data or looks_binary(data):
        return
    lines = data.decode(errors="replace").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        if pattern.search(line):
            yield Match(found.path, number, line)


def _whole(found: Found) -> bytes:
    """All bytes of a file of at most FILE_LIMIT, else none."""
    try:
        with open_regular_at(found.parent, found.name, found.path) as file:
            data = file.read(FILE_LIMIT + 1)
    except (OSError, ToolError):
        return b""
    return data if len(data) <= FILE_LIMIT else b""
