"""The view of a call's raw output: what of it fits into a context. Owns what is kept, what goes, how that is said.
(What of a program's bytes is text: `plain_text`. Which lines say what went wrong: `key_lines`.)

Rules
1. A view is at most ``cap`` bytes of UTF-8, markers included. Text below the cap is shown unchanged; a view of a view
   is the view; the same bytes give the same view.
2. Above the cap: 40 % for the beginning, 40 % for the end, 20 % for key lines of what lies between, with their numbers.
   What a share leaves unused goes to the end. Cuts fall between lines; inside a line between code points, when no line
   end is within the share.
3. The marker counts bytes and lines *of the raw output*, left out and kept, which add up to the whole. Kept is what
   stands before and after the marker (a line, when all of it does); the key lines are among the rest.
4. Binary output is a line that says its type, its size, its digest when known, and where it lies.
5. Work is bounded and linear: the input is two windows of at most 256 KiB (or one of both), and the number of line ends
   of the whole, when somebody has counted them.

A view holds output and nothing else. What a caller needs in any case (status, exit, duration, delivery) are fields of
the result beside it: no length of output can cut them, and no text of a program can forge them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from supervisor.core.key_lines import KeyLine, fitting, key_lines
from supervisor.core.plain_text import cleaned, is_binary, kind_of

VIEW_BYTES = 8_192
LEAST_CAP = 1_024
_HEAD_SHARE, _KEY_SHARE = 0.4, 0.2
_PATH_BYTES = 400
_ROUNDS = 4
_KEY_OPENING = b"[key lines among them:]\n"
_KEY_CLOSING = b"[the end:]\n"
_MARKER = re.compile(r"^(\[(?:… left out|binary output): .*?)(?:; whole output: .*)?\]$", re.MULTILINE)
_KEY_HEADINGS = len(_KEY_OPENING + _KEY_CLOSING)


def view_of(
    head: bytes,
    tail: bytes,
    size: int,
    path: str | None,
    digest: str | None = None,
    cap: int = VIEW_BYTES,
    line_ends: int | None = None,
) -> str:
    """The view of ``size`` bytes that begin with ``head`` and end with ``tail`` (which is empty when ``head`` is all).

    ``path``: where the whole lies. ``digest``: its SHA-256, for binary output. ``cap``: at least 1024, else ValueError.
    ``line_ends``: newlines in the whole, where ``head`` and ``tail`` are not all of it and somebody knows.
    """
    if cap < LEAST_CAP:
        raise ValueError(f"a view of {cap} bytes is too small; allowed: at least {LEAST_CAP}")
    seen = len(head) + len(tail)
    whole = seen >= size
    if whole:  # the windows touch or overlap: one text
        head, tail = head + tail[seen - size :], b""
    if is_binary(head) or is_binary(tail):
        return _binary(head, size, path, digest)
    text = cleaned(head)
    if whole:
        if len(text) <= cap:
            return text.decode()
        return _cut(_Seen(text, len(text), (head, head), size, _lines(head, head.count(b"\n")), path), cap)
    beginning, end, from_start = _without_cut_lines(text, cleaned(tail))
    lines = None if line_ends is None else _lines(tail, line_ends)
    return _cut(_Seen(beginning + end, len(beginning), (head, tail), size, lines, path, True, from_start), cap)


def _lines(tail: bytes, line_ends: int) -> int:
    """Lines of what ends with ``tail``: the last may have no line end."""
    return line_ends + (not tail.endswith(b"\n"))


def _binary(head: bytes, size: int, path: str | None, digest: str | None) -> str:
    said = f"[binary output: {kind_of(head) or 'unknown type'}, {size} bytes"
    return said + (f", sha256 {digest}" if digest else "") + f"{_whereabouts(path)}]\n"


def _whereabouts(path: str | None) -> str:
    if path is None:
        return ""
    text = cleaned(path.encode("utf-8", "replace")).replace(b"\n", b"?")
    shown = text if len(text) <= _PATH_BYTES else "…".encode() + text[_forward(text, len(text) - _PATH_BYTES) :]
    return f"; whole output: {shown.decode()}"


def _without_cut_lines(beginning: bytes, end: bytes) -> tuple[bytes, bytes, bool]:
    """The windows without the lines that their edges cut; a window that is one line stays. True: the second one begins
    with a whole line."""
    beginning = beginning[: beginning.rfind(b"\n") + 1] or beginning
    after = end[end.find(b"\n") + 1 :] if b"\n" in end else b""
    return beginning, after or end, bool(after)


def without_place(view: str) -> str:
    """A view that says nothing about where the whole lies: equal for two calls that wrote the same."""
    return _MARKER.sub(r"\1]", view)


def without_marker(view: str) -> str:
    """A view that says nothing about how much is left out either."""
    return _MARKER.sub("[…]", view)


# ---------------------------------------------------------------- above the cap


class _Seen(NamedTuple):
    """What there is to choose from. ``gap``: offset in ``text`` where the bytes that no window holds are missing (its
    end, when all were seen). ``raw``: what the text before and after the gap was made of. ``size``, ``lines``: of the
    raw output; lines None when nobody has counted. ``from_start``: the text after the gap begins with a whole line."""

    text: bytes
    gap: int
    raw: tuple[bytes, bytes]
    size: int
    lines: int | None
    path: str | None
    windows: bool = False
    from_start: bool = True


def _cut(seen: _Seen, cap: int) -> str:
    text = seen.text
    room = cap - _most_of_marker(seen) - len("\n")
    key_room = int(room * _KEY_SHARE)
    head_end = _head_end(text, min(seen.gap, int(room * _HEAD_SHARE)))
    least = seen.gap if seen.windows else head_end
    tail_start = _tail_start(text, max(least, len(text) - (room - head_end - key_room)))
    keys = key_lines(text, head_end, tail_start, seen.gap)
    for _ in range(_ROUNDS):
        kept = fitting(keys, key_room - _KEY_HEADINGS)
        key_room = sum(line.cost for line in kept) + _KEY_HEADINGS if kept else 0
        # What the key lines left goes to the end, which may now hold some of them, which leaves more.
        wider = _tail_start(text, max(least, len(text) - (room - head_end - key_room)))
        if wider >= tail_start:
            break
        tail_start, keys = wider, [line for line in keys if line.at < wider]
    kept = fitting(keys, key_room - _KEY_HEADINGS)
    return _composed(seen, head_end, tail_start, list(_numbered(kept, seen)))


def _composed(seen: _Seen, head_end: int, tail_start: int, keys: list[bytes]) -> str:
    head, tail = seen.text[:head_end], seen.text[tail_start:]
    from_start = seen.from_start if tail_start == seen.gap else seen.text[tail_start - 1 : tail_start] == b"\n"
    kept_bytes = _raw_before(seen.raw[0], head) + _raw_behind(seen.raw[1], tail, from_start)
    kept_lines = head.count(b"\n") + (_lines(tail, tail.count(b"\n")) - (not from_start) if tail else 0)
    marker = _marker(seen, kept_bytes, kept_lines)
    middle = [marker, _KEY_OPENING, *keys, _KEY_CLOSING] if keys else [marker]
    return b"".join([head, b"" if head.endswith(b"\n") or not head else b"\n", *middle, tail]).decode()


def _raw_before(raw: bytes, shown: bytes) -> int:
    """How many bytes of ``raw`` the text ``shown`` at its beginning was made of."""
    ends = shown.count(b"\n")
    rest = raw.split(b"\n", ends)[-1]
    cut_line = len(shown) - shown.rfind(b"\n") - 1
    return len(raw) - len(rest) + min(cut_line, len(rest.partition(b"\n")[0]))


def _raw_behind(raw: bytes, shown: bytes, from_start: bool) -> int:
    """How many bytes of ``raw`` the text ``shown`` at its end was made of; it begins with a whole line, or not."""
    if not shown:
        return 0
    before = raw.rsplit(b"\n", shown.count(b"\n"))[0]
    line = len(before) - before.rfind(b"\n") - 1
    return len(raw) - len(before) + (line if from_start else min(line, len(shown.partition(b"\n")[0])))


def _marker(seen: _Seen, kept_bytes: int, kept_lines: int) -> bytes:
    def counted(many_bytes: int, many_lines: int) -> str:
        lines = "" if seen.lines is None else f" in {many_lines} line{'s' * (many_lines != 1)}"
        return f"{many_bytes} bytes{lines}"

    left = counted(seen.size - kept_bytes, (seen.lines or 0) - kept_lines)
    windows = " (looked at: its first and last 256 KiB)" if seen.windows else ""
    return f"[… left out: {left}; kept: {counted(kept_bytes, kept_lines)}{windows}{_whereabouts(seen.path)}]\n".encode()


def _most_of_marker(seen: _Seen) -> int:
    """The most bytes that a marker can take: every number as long as the largest, every plural with its s."""
    return len(_marker(seen, 0, 0)) + len(f"{seen.size}{seen.lines or 0}ss")


def _head_end(text: bytes, share: int) -> int:
    return text.rfind(b"\n", 0, share) + 1 or _backward(text, share)


def _tail_start(text: bytes, earliest: int) -> int:
    """Where the first whole line at or after ``earliest`` begins; else the code point there."""
    if earliest <= 0:
        return 0
    start = text.find(b"\n", earliest - 1, len(text) - 1) + 1
    return start or _forward(text, earliest)


def _backward(text: bytes, at: int) -> int:
    while 0 < at < len(text) and text[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _forward(text: bytes, at: int) -> int:
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def _numbered(lines: list[KeyLine], seen: _Seen) -> Iterator[bytes]:
    """Lines with their numbers in the raw output; behind the gap, when nobody has counted, from the end: ``-3: text``
    is the last but two."""
    text, gap = seen.text, seen.gap
    at, number, behind = 0, 1, False
    for line in lines:
        if line.at >= gap and not behind:
            at, number, behind = gap, -1 - text.count(b"\n", gap, len(text) - 1), True
            number += 0 if seen.lines is None else seen.lines + 1
        number += text.count(b"\n", at, line.at)
        at = line.at
        yield line.numbered(number)
