"""``list_files``: the regular files beneath a directory, in a stable order, at most so many."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

from msgspec import Meta

from toolworkers._context import Context
from toolworkers._tools import tool
from toolworkers.builtin._beneath import locate, open_directory, told_by
from toolworkers.builtin._globs import glob_matcher
from toolworkers.builtin._tree import shown, walk

BYTES_LIMIT = 512 << 10
"""Bytes of paths in one answer."""


@tool(read_only=True, roles={"path": "path"})
def list_files(
    ctx: Context,
    path: str = ".",
    glob: str | None = None,
    max: Annotated[int, Meta(ge=1, le=10_000)] = 1_000,  # noqa: A002  # the argument's published name
) -> dict[str, Any]:
    """List the files beneath a directory, sorted. Passed over: links, .git, .venv, node_modules and the like (unless
    ``path`` leads into them). ``glob``: ``*.py`` by name, ``src/**/*.py`` by path. ``truncated``: there are more."""
    matches, place = glob_matcher(glob), locate(ctx, path)
    prefix = "" if place.shown == "." else f"{place.shown}/"
    files: list[str] = []
    room = BYTES_LIMIT
    truncated = False
    with told_by(path), open_directory(place) as directory, contextlib.closing(walk(directory)) as found_files:
        for found in found_files:
            if matches(found.path):
                file = shown(prefix + found.path)
                room -= len(file.encode())
                truncated = len(files) == max or room < 0
                if truncated:
                    break
                files.append(file)
    return {"files": files, "truncated": truncated}
