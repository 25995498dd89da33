"""``read_file``: whole lines of a text file, at most as many as fit one frame; says where the rest begins."""

from __future__ import annotations

from typing import Annotated, Any, BinaryIO

from msgspec import Meta

from protocol._framing import FRAME_LIMIT
from toolworkers._context import Context
from toolworkers._tools import ToolError, tool
from toolworkers.builtin._beneath import locate, open_regular, told_by

TEXT_LIMIT = FRAME_LIMIT - (64 << 10)
"""Bytes of text in one answer: a frame less what surrounds the text in it."""
_BINARY_WINDOW = 8 << 10


@tool(read_only=True, roles={"path": "path"})
def read_file(
    path: str,
    ctx: Context,
    start_line: Annotated[int, Meta(ge=1)] = 1,
    max_lines: Annotated[int, Meta(ge=1)] | None = None,
) -> dict[str, Any]:
    """Read a text file, or lines of it from ``start_line`` (1 is the first). When there is more, it is ``truncated``
    and ``next_line`` says where to go on."""
    place = locate(ctx, path)
    with told_by(path), open_regular(place) as file:
        _refuse_binary(file, path)
        _skip_lines(file, start_line - 1, path)
        taken, lines, cut = _take_lines(file, max_lines)
        more = bool(file.read(1))
    text, complete = _decoded(taken)
    truncated = more or cut or not complete
    answer = {"path": place.shown, "text": text, "start_line": start_line, "lines": lines, "truncated": truncated}
    if truncated:
        answer["next_line"] = start_line + lines
    return answer


def _refuse_binary(file: BinaryIO, path: str) -> None:
    if b"\0" in file.read(_BINARY_WINDOW):
        raise ToolError(f"{path!r} is a binary file; allowed: text", code="not_text", class_="argument")
    file.seek(0)


def _skip_lines(file: BinaryIO, count: int, path: str) -> None:
    """Pass ``count`` lines, in pieces because a line may be longer than memory."""
    passed, inside = 0, False
    while passed < count:
        piece = file.readline(TEXT_LIMIT)
        if not piece:
            raise ToolError(
                f"{path!r} has {passed + inside} lines; allowed: start_line up to that", "past_end", "argument"
            )
        inside = not piece.endswith(b"\n")
        passed += not inside
    if count and not file.peek(1):  # type: ignore[attr-defined]  # open(…, "rb") gives a BufferedReader
        raise ToolError(f"{path!r} has {passed} lines; allowed: start_line up to that", "past_end", "argument")


def _take_lines(file: BinaryIO, max_lines: int | None) -> tuple[bytes, int, bool]:
    """Whole lines while they fit, how many, and whether a first line that alone is too long was cut."""
    taken: list[bytes] = []
    room = TEXT_LIMIT
    while max_lines is None or len(taken) < max_lines:
        line = file.readline(room + 1)  # one more than fits, to see whether it does
        if len(line) > room and not taken:
            return line[:room], 1, True
        if not line or len(line) > room:
            file.seek(-len(line), 1)
            break
        taken.append(line)
        room -= len(line)
    return b"".join(taken), len(taken), False


def _decoded(taken: bytes) -> tuple[str, bool]:
    """Text, and whether it is all of it: bytes that are no UTF-8 become U+FFFD, which is longer and may not fit."""
    text = taken.decode(errors="replace")
    encoded = text.encode()
    if len(encoded) <= TEXT_LIMIT:
        return text, True
    return encoded[:TEXT_LIMIT].decode(errors="ignore"), False
