"""The view of a call's raw output: what of it fits into a context. Owns what is kept, what is left out, how that is said.

Rules
1. A view is at most ``cap`` bytes of UTF-8, markers included. Text below the cap is shown unchanged; a view of a view is
   the view; the same bytes give the same view.
2. Text is cleaned first: escape sequences and other control characters go, of what a carriage return overwrites the last
   writing stays, bytes that are no UTF-8 become U+FFFD.
3. Above the cap: 40 % for the beginning, 40 % for the end, 20 % for key lines of what lies between, each with its number.
   What a share leaves unused goes to the end. Cuts fall between lines; inside a line between code points, when no
   line end is within the share.
4. Of each distinct message (numbers do not distinguish) the first and the last line are key; failures go before warnings
   when both do not fit.
5. Binary output is a line that says its type, its size, its digest when known, and where it lies.
6. Work is bounded and linear: the input is two windows of at most 256 KiB (or one of both), searched by words, not by a
   regular expression (which would take 26 ms and hold the GIL; this takes about 2).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

VIEW_BYTES = 8_192
_LEAST_CAP = 1_024
_HEAD_SHARE, _KEY_SHARE = 0.4, 0.2
_FAILURES = (b"error", b"fail", b"exception", b"traceback", b"panic", b"assert", b"denied")
_REMARKS = (b"warning", b"exit")
_HITS_OF_A_WORD = 128
"""Looked at from each end of the middle: what is said more often than that does not fit anyway."""
_KEY_LINE_BYTES = 240
_PATH_BYTES = 400
_BINARY_SHARE = 0.1

_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|[]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?|[ -/]*+[0-~])?")
_STRUCK_OVER = re.compile(rb"[^\x08\n]\x08")
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_NUMBER = re.compile(rb"0x[0-9a-f]+|[0-9]+")
_CONTROLS = bytes(code for code in (*range(32), 127) if code not in b"\n\t")
_ODD_CONTROLS = bytes(code for code in _CONTROLS if code not in b"\r\x08\x0c\x1b")
_MAGIC = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


def view_of(
    head: bytes, tail: bytes, size: int, path: str | None, digest: str | None = None, cap: int = VIEW_BYTES
) -> str:
    """The view of an output of ``size`` bytes that begins with ``head`` and ends with ``tail`` (empty: ``head`` is all).

    ``path``: where the whole lies. ``digest``: its SHA-256, for binary output. ``cap``: bytes, at least 1024 (ValueError).
    """
    if cap < _LEAST_CAP:
        raise ValueError(f"a view of {cap} bytes is too small; allowed: at least {_LEAST_CAP}")
    seen = len(head) + len(tail)
    whole = seen >= size
    if whole:  # the windows touch or overlap: one text
        head, tail = head + tail[seen - size :], b""
    if _is_binary(head) or _is_binary(tail):
        return _binary(head, size, path, digest)
    beginning = cleaned(head)
    if whole and len(beginning) <= cap:
        return beginning.decode()
    if not whole:
        beginning, end = _without_cut_lines(beginning, cleaned(tail))
        return _cut(beginning + end, len(beginning), size, path, cap)
    return _cut(beginning, len(beginning), size, path, cap)


def cleaned(raw: bytes) -> bytes:
    """Rule 2: valid UTF-8 without control characters other than line ends and tabs."""
    if b"\x1b" in raw:
        raw = _ESCAPE.sub(b"", raw)
    if b"\r" in raw:
        raw = b"\n".join(map(_last_written, raw.replace(b"\r\n", b"\n").split(b"\n")))
    if b"\x08" in raw:
        raw = _STRUCK_OVER.sub(b"", raw)
    text = raw.translate(None, _CONTROLS).decode("utf-8", "replace").encode()
    # Last, because what was deleted may have stood between the two bytes of one.
    return _C1.sub(b"", text) if b"\xc2" in text else text


def _last_written(line: bytes) -> bytes:
    if b"\r" not in line:
        return line
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def _is_binary(raw: bytes) -> bool:
    """NUL, or more than a tenth of bytes that no text has."""
    if b"\0" in raw:
        return True
    odd = len(raw) - len(raw.translate(None, _ODD_CONTROLS))
    if not raw.isascii():
        odd += raw.decode("utf-8", "replace").count("\ufffd") - raw.count("\ufffd".encode())
    return odd > _BINARY_SHARE * len(raw)


def _binary(head: bytes, size: int, path: str | None, digest: str | None) -> str:
    kind = next((name for magic, name in _MAGIC if head.startswith(magic)), "unknown type")
    said = f"[binary output: {kind}, {size} bytes"
    return said + (f", sha256 {digest}" if digest else "") + f"{_whereabouts(path)}]\n"


def _whereabouts(path: str | None) -> str:
    if path is None:
        return ""
    text = cleaned(path.encode("utf-8", "replace")).replace(b"\n", b"?")
    shown = text if len(text) <= _PATH_BYTES else "…".encode() + text[_forward(text, len(text) - _PATH_BYTES) :]
    return f"; whole output: {shown.decode()}"


def _without_cut_lines(beginning: bytes, end: bytes) -> tuple[bytes, bytes]:
    """The windows without the lines that their edges cut; a window that is one line stays."""
    beginning = beginning[: beginning.rfind(b"\n") + 1] or beginning
    return beginning, end[end.find(b"\n") + 1 :] or end


# ---------------------------------------------------------------- above the cap


class _KeyLine(NamedTuple):
    """A line worth keeping. ``at``: its offset in the text. ``rank``: smaller is kept first."""

    at: int
    rank: int
    text: bytes


def _cut(text: bytes, gap: int, size: int, path: str | None, cap: int) -> str:
    """``text`` is what the windows hold; what neither holds is missing at ``gap`` (its end, when nothing is)."""
    room = cap - len(_marker(size, size, size, gap < len(text), path)) - len(_KEY_OPENING) - len(_KEY_CLOSING) - 1
    head_end = _head_end(text, min(gap, int(room * _HEAD_SHARE)))
    least = gap if gap < len(text) else head_end
    tail_room = room - head_end - int(room * _KEY_SHARE)
    tail_start = _tail_start(text, max(least, len(text) - tail_room))
    keys = _key_lines(text, head_end, tail_start, gap)
    while True:
        kept = _fitting(keys, int(room * _KEY_SHARE))
        used = head_end + sum(len(line) for line in _numbered(kept, text, gap))
        wider = _tail_start(text, max(least, len(text) - (room - used)))
        if wider >= tail_start:
            break
        tail_start = wider  # what the key lines left; they may lie in it now
        keys = [line for line in keys if line.at < tail_start]
    return _composed(text, head_end, tail_start, list(_numbered(kept, text, gap)), gap, size, path)


_KEY_OPENING = b"[key lines among them:]\n"
_KEY_CLOSING = b"[the end:]\n"


def _composed(
    text: bytes, head_end: int, tail_start: int, keys: list[bytes], gap: int, size: int, path: str | None
) -> str:
    head, tail = text[:head_end], text[tail_start:]
    lines = text.count(b"\n", head_end, tail_start)
    marker = _marker(size - len(head) - len(tail), size, lines, gap < len(text), path)
    middle = [marker, _KEY_OPENING, *keys, _KEY_CLOSING] if keys else [marker]
    return b"".join([head, b"" if head.endswith(b"\n") or not head else b"\n", *middle, tail]).decode()


def _marker(missing: int, size: int, lines: int, windows: bool, path: str | None) -> bytes:
    counted = " (seen: its first and last 256 KiB)" if windows else f" ({lines} lines)" if lines else ""
    return f"[… {missing} of {size} bytes left out{counted}{_whereabouts(path)}]\n".encode()


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


def _key_lines(text: bytes, start: int, end: int, gap: int) -> list[_KeyLine]:
    """First and last line of each message between ``start`` and ``end``, by place. No line crosses ``gap``."""
    found: dict[int, _KeyLine] = {}
    for low, high in ((start, min(gap, end)), (max(gap, start), end)):
        region = text[low:high].lower()
        for rank, words in ((0, _FAILURES), (2, _REMARKS)):
            for at, stop in {line for word in words for line in _lines_with(word, region)}:
                found.setdefault(low + at, _KeyLine(low + at, rank, text[low + at : low + stop]))
    return _first_and_last(sorted(found.values()))


def _lines_with(word: bytes, region: bytes) -> Iterator[tuple[int, int]]:
    """Lines (start, end) of the lower-case ``region`` that hold ``word``: some from the front, some from the back."""
    at = region.find(word)
    for _ in range(_HITS_OF_A_WORD):
        if at < 0:
            return
        yield (line := _line_around(region, at))
        at = region.find(word, line[1])
    at = region.rfind(word)
    for _ in range(_HITS_OF_A_WORD):
        if at < 0:
            return
        yield (line := _line_around(region, at))
        at = region.rfind(word, 0, line[0])


def _line_around(region: bytes, at: int) -> tuple[int, int]:
    end = region.find(b"\n", at)
    return region.rfind(b"\n", 0, at) + 1, len(region) if end < 0 else end


def _first_and_last(lines: list[_KeyLine]) -> list[_KeyLine]:
    first: dict[bytes, _KeyLine] = {}
    last: dict[bytes, _KeyLine] = {}
    for line in lines:
        message = _NUMBER.sub(b"#", line.text[:_KEY_LINE_BYTES].strip().lower())
        first.setdefault(message, line)
        last[message] = line
    repeats = (line._replace(rank=line.rank + 1) for message, line in last.items() if line is not first[message])
    return sorted([*first.values(), *repeats])


def _fitting(lines: list[_KeyLine], room: int) -> list[_KeyLine]:
    """The most important lines that fit, by place."""
    kept: list[_KeyLine] = []
    for line in sorted(lines, key=lambda line: (line.rank, line.at)):
        cost = min(len(line.text), _KEY_LINE_BYTES) + _NUMBERING_BYTES
        if cost <= room:
            room -= cost
            kept.append(line)
    return sorted(kept)


_NUMBERING_BYTES = 13
"""At most: a sign, seven digits, ``: ``, the ellipsis of a line that was cut, less than this and a line end."""


def _numbered(lines: list[_KeyLine], text: bytes, gap: int) -> Iterator[bytes]:
    """``12: text``; lines behind the gap are counted from the end: ``-3: text`` is the last but two."""
    for line in lines:
        behind = line.at >= gap
        number = -text.count(b"\n", line.at, len(text) - 1) - 1 if behind else text.count(b"\n", 0, line.at) + 1
        cut = line.text[: _backward(line.text, _KEY_LINE_BYTES)]
        yield b"%d: %s%s\n" % (number, cut, "…".encode() if len(cut) < len(line.text) else b"")
