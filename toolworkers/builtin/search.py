"""``search``: lines that match a regular expression. ripgrep does it when it is there and reads the pattern as Python
does; else Python. Which of the two answered cannot be told from the answer."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import warnings
from collections.abc import Generator, Iterator
from typing import Annotated, Any

from msgspec import Meta

from toolworkers._context import Context
from toolworkers._tools import ToolError, tool
from toolworkers.builtin._beneath import Place, locate, open_directory, open_parent, refuse_irregular, told_by
from toolworkers.builtin._globs import glob_matcher
from toolworkers.builtin._matches import FILE_LIMIT, Match, Start
from toolworkers.builtin._ripgrep import Unanswered, find_ripgrep, ripgrep
from toolworkers.builtin._scan import scan
from toolworkers.builtin._tree import shown

BYTES_LIMIT = 512 << 10
"""Bytes of matches in one answer."""
LINE_LIMIT = 500
"""Characters of a line that are shown."""


@tool(read_only=True, roles={"path": "path"})
def search(
    pattern: str,
    ctx: Context,
    path: str = ".",
    glob: str | None = None,
    max: Annotated[int, Meta(ge=1, le=10_000)] = 100,  # noqa: A002  # the argument's published name
) -> dict[str, Any]:
    """Find lines that match a regular expression (Python's syntax) in a file or beneath a directory.

    In order of path and line. Passed over: binary files, files over 16 MiB, links, .git, .venv, node_modules and the
    like (unless ``path`` leads into them). ``glob``: ``*.py`` by name, ``src/**/*.py`` by path. ``truncated`` when
    there are more than ``max``.
    """
    compiled, place = _compiled(pattern), locate(ctx, path)
    prefix = "" if place.shown == "." else f"{place.shown}/"
    with told_by(path), _open_start(place, glob) as start:
        if start.file is not None:
            prefix = place.shown[: -len(start.file)]
        return _gathered(_matches(compiled, start), prefix, max)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # "possible nested set": [[:alpha:]] and [a--b] are sets for other engines and accidents for Python's.
            warnings.simplefilter("error")
            return re.compile(pattern)
    except (re.error, Warning, RecursionError, OverflowError) as error:
        raise ToolError(
            f"pattern {pattern!r} is no regular expression: {error}", "invalid_pattern", "argument"
        ) from error


@contextlib.contextmanager
def _open_start(place: Place, glob: str | None) -> Iterator[Start]:
    """The directory to walk, or the one file with the directory that holds it."""
    matches = glob_matcher(glob)
    with open_parent(place) as (parent, name):
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(there.st_mode):
            with open_directory(place) as directory:
                yield Start(directory, None, matches, glob)
            return
        refuse_irregular(there.st_mode, place.asked)
        if there.st_size > FILE_LIMIT:
            raise ToolError(
                f"{place.asked!r} is over {FILE_LIMIT} bytes; allowed: smaller files", "too_large", "argument"
            )
        yield Start(parent, name, matches, glob)


def _matches(compiled: re.Pattern[str], start: Start) -> Generator[Match, None, None]:
    program = find_ripgrep()
    if program is None:
        return (yield from scan(compiled, start))
    try:
        yield from ripgrep(program, compiled.pattern, start)
    except Unanswered:  # raised before the first match, so nothing is said twice
        yield from scan(compiled, start)


def _gathered(matches: Generator[Match, None, None], prefix: str, limit: int) -> dict[str, Any]:
    gathered: list[dict[str, Any]] = []
    room, truncated = BYTES_LIMIT, False
    with contextlib.closing(matches):
        for match in matches:
            path, text = shown(prefix + match.path), match.text.rstrip("\r\n")[:LINE_LIMIT]
            room -= len(path.encode()) + len(text.encode())
            truncated = len(gathered) == limit or room < 0
            if truncated:
                break
            gathered.append({"path": path, "line": match.line, "text": text})
    return {"matches": gathered, "truncated": truncated}
