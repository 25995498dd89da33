"""The search by ripgrep, told to see exactly the files that `_tree.walk` sees and asked only for patterns that its
engine and Python's read alike. Its lines are judged by the same rules as Python's (binary files, globs)."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import msgspec

from toolworkers._tools import ToolError
from toolworkers.builtin._matches import BINARY_WINDOW, FILE_LIMIT, Match, Start, looks_binary
from toolworkers.builtin._tree import DEPTH_LIMIT, PASSED_OVER

_FIXED = (
    "--json --no-config --no-ignore --hidden --no-messages --text --encoding none --no-mmap"
    " --sort path --case-sensitive"
).split()
_ESCAPES = r"\\[dDwWsStnrfv.()\[\]{}*+?|^$\\-]"
_PORTABLE = re.compile(
    rf"""(?:\(\?i\))?                                     # ignore case, for the whole of it
    (?:{_ESCAPES} | \\[bB]
     | \[\^?\]?(?:{_ESCAPES}|[^\\\[\]&~-]|-(?!-))*\]       # a class without nested sets
     | (?:[*+?]|\{{[0-9]+(?:,[0-9]*)?\}})(?!\+)            # a quantifier that is not possessive
     | \((?:\?:|(?!\?)) | [)|.^$] | [^\\\[\](){{}}*+?|.^$]
    )*""",
    re.VERBOSE,
)
_SIMPLE_GLOB = re.compile(r"[A-Za-z0-9_.*-]+")


class Unanswered(Exception):  # noqa: N818  # not an error: the other searcher answers
    """ripgrep refused the pattern or could not be run, and nothing was yielded."""


def find_ripgrep() -> str | None:
    """``rg`` on this process's PATH."""
    for directory in os.get_exec_path():
        candidate = os.path.join(directory, "rg")
        if os.path.isabs(directory) and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return None


def portable(pattern: str) -> bool:
    """Whether both engines are known to read a pattern alike (look-around, ``\\<``, nested sets … they do not)."""
    return _PORTABLE.fullmatch(pattern) is not None


def ripgrep(program: str, pattern: str, start: Start) -> Generator[Match, None, None]:
    """Matching lines in order of path and line; raises Unanswered before the first one when there is no telling.

    Closing the iterator ends ripgrep and waits for it.
    """
    if not portable(pattern):
        raise Unanswered
    try:
        process = subprocess.Popen(
            _argv(program, pattern, start),
            cwd=f"/proc/self/fd/{start.directory}",  # the directory that was checked, whatever its path leads to by now
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
    except OSError as error:
        raise Unanswered from error
    with process:
        answered = yield from _wanted_until_closed(process, start)
    # 0 found, 1 found nothing, 2 refused the pattern or could not read a file; a signal is a search cut short.
    if process.returncode not in (0, 1) and not answered:
        raise Unanswered
    if process.returncode < 0:
        raise ToolError(f"ripgrep was ended by signal {-process.returncode}", code="search_failed")


def _wanted_until_closed(process: subprocess.Popen[bytes], start: Start) -> Generator[Match, None, bool]:
    """Wanted matches; whether there was any. A reader that has enough ends ripgrep, which may be far from done."""
    assert process.stdout is not None
    answered = False
    try:
        for match in _wanted(process.stdout, start):
            answered = True
            yield match
    except BaseException:
        process.terminate()
        raise
    return answered


def _argv(program: str, pattern: str, start: Start) -> list[str]:
    bounds = ["--max-depth", str(DEPTH_LIMIT), "--max-filesize", str(FILE_LIMIT)]
    # A glob that both read alike spares ripgrep the other files; all others only filter what it found.
    globs = [start.glob] if start.glob is not None and _SIMPLE_GLOB.fullmatch(start.glob) else []
    globs += [f"!{name}" for name in PASSED_OVER]
    return [
        program,
        *_FIXED,
        *bounds,
        *(f"--glob={glob}" for glob in globs),
        f"--regexp={pattern}",
        "--",
        f"./{start.file or ''}",
    ]


def _wanted(lines: Iterable[bytes], start: Start) -> Iterator[Match]:
    judged: tuple[str, bool] = ("", False)
    for line in lines:
        said = msgspec.json.decode(line)
        if said["type"] != "match":
            continue
        match = _match(said["data"])
        if match.path != judged[0]:
            judged = match.path, start.wanted(match.path) and not _binary(start.directory, match.path)
        if judged[1]:
            yield match


def _match(said: dict[str, Any]) -> Match:
    # The start of a file's path is "./" as we asked; a lone file is named as it was asked for.
    path = os.fsdecode(_bytes(said["path"])).removeprefix("./")
    return Match(path, said["line_number"], _bytes(said["lines"]).decode(errors="replace"))


def _bytes(said: dict[str, str]) -> bytes:
    """ripgrep says text where it is UTF-8, and base64 where it is not."""
    return said["text"].encode() if "text" in said else base64.b64decode(said["bytes"])


def _binary(directory: int, path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return True
    with open(descriptor, "rb") as file:
        return looks_binary(file.read(BINARY_WINDOW))
