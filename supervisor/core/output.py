"""The view of a call's raw output: what of it fits into a context. Owns what is kept, what goes, how that is said.

Rules
1. A view is at most ``cap`` bytes of UTF-8, markers included. Text below the cap is shown unchanged; a view of a view
   is the view; the same bytes give the same view.
2. Text is cleaned first: escape sequences and other control characters go; of what a carriage return overwrites the
   last writing stays; bytes that are no UTF-8 become U+FFFD.
3. Above the cap: 40 % for the beginning, 40 % for the end, 20 % for key lines of what lies between, with their numbers.
   What a share leaves unused goes to the end. Cuts fall between lines; inside a line between code points, when no line
   end is within the share.
4. Of each distinct message (numbers do not distinguish) the first and the last line are key; failures go before
   warnings when both do not fit, first lines before last ones.
5. Binary output is a line that says its type, its size, its digest when known, and where it lies.
6. Work is bounded and linear: the input is two windows of at most 256 KiB (or one of both), searched by words, not by a
   regular expression (which would take 26 ms and hold the GIL; this takes about 2).
"""

from __future__ import annotations

import re
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
_SAMPLE_BYTES = 64 << 10
_CUT_CODE_POINTS = 4
"""The most that a window's edges can leave of whole text."""
_PIECE_BYTES = 32 << 10

_ESCAPE = re.compile(rb"\x1b++(?:\[[0-?]*+[ -/]*+[@-~]|[]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?|[ -/]*+[0-~])?")
_STRUCK_OVER = re.compile(rb"(?:[\xc0-\xff][\x80-\xbf]*+|[^\x08\n])\x08")
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
    """The view of ``size`` bytes that begin with ``head`` and end with ``tail`` (which is empty when ``head`` is all).

    ``path``: where the whole lies. ``digest``: its SHA-256, for binary output. ``cap``: at least 1024, else ValueError.
    """
    if cap < _LEAST_CAP:
        raise ValueError(f"a view of {cap} bytes is too small; allowed: at least {_LEAST_CAP}")
    seen = len(head) + len(tail)
    whole = seen >= size
    if whole:  # the windows touch or overlap: one text
        head, tail = head + tail[seen - size :], b""
    if _is_binary(head) or _is_binary(tail):
        return _binary(head, size, path, digest)
    text = cleaned(head)
    if whole:
        return text.decode() if len(text) <= cap else _cut(_Seen(text, len(text), len(text), False, path), cap)
    beginning, end = _without_cut_lines(text, cleaned(tail))
    return _cut(_Seen(beginning + end, len(beginning), size, True, path), cap)


def cleaned(raw: bytes) -> bytes:
    """Rule 2: valid UTF-8 without control characters other than line ends and tabs."""
    if any(mark in raw for mark in (b"\x1b", b"\r", b"\x08")):
        # In pieces: a substitution holds the GIL until its end, and a hostile text is nothing but escapes.
        raw = b"".join(map(_without_overwriting, _pieces(raw)))
    text = raw.translate(None, _CONTROLS).decode("utf-8", "replace").encode()
    # Last, because what was deleted may have stood between the two bytes of one.
    return _C1.sub(b"", text) if b"\xc2" in text else text


def _pieces(raw: bytes) -> Iterator[bytes]:
    """The bytes in pieces of whole lines."""
    start = 0
    while start < len(raw):
        end = raw.find(b"\n", start + _PIECE_BYTES) + 1 or len(raw)
        yield raw[start:end]
        start = end


def _without_overwriting(raw: bytes) -> bytes:
    raw = _ESCAPE.sub(b"", raw).replace(b"\r\n", b"\n")
    if b"\r" in raw:
        raw = b"\n".join(map(_last_written, raw.split(b"\n")))
    return _STRUCK_OVER.sub(b"", raw) if b"\x08" in raw else raw


def _last_written(line: bytes) -> bytes:
    if b"\r" not in line:
        return line
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def _is_binary(raw: bytes) -> bool:
    """NUL, or more than a tenth of bytes that no text has."""
    if b"\0" in raw:
        return True
    sample = raw[:_SAMPLE_BYTES]
    odd = len(sample) - len(sample.translate(None, _ODD_CONTROLS))
    if not sample.isascii():
        odd += sample.decode("utf-8", "replace").count("\ufffd") - sample.count("\ufffd".encode())
    return odd > _BINARY_SHARE * len(sample) + _CUT_CODE_POINTS


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


class _Seen(NamedTuple):
    """What there is to choose from. ``gap``: offset in ``text`` where the bytes that no window holds are missing (its
    end, when all were seen). ``size``: of the text; of the raw output when not all of it was seen."""

    text: bytes
    gap: int
    size: int
    windows: bool
    path: str | None


class _KeyLine(NamedTuple):
    """A line worth keeping. ``at``: its offset in the text. ``rank``: smaller is kept first."""

    at: int
    rank: int
    text: bytes


def _cut(seen: _Seen, cap: int) -> str:
    text = seen.text
    room = cap - len(_marker(seen, seen.size, seen.size)) - len(_KEY_OPENING) - len(_KEY_CLOSING) - len(b"\n")
    key_room = int(room * _KEY_SHARE)
    head_end = _head_end(text, min(seen.gap, int(room * _HEAD_SHARE)))
    least = seen.gap if seen.windows else head_end
    tail_start = _tail_start(text, max(least, len(text) - (room - head_end - key_room)))
    keys = _key_lines(text, head_end, tail_start, seen.gap)
    for _ in range(_ROUNDS):
        kept = _fitting(keys, key_room)
        key_room = sum(map(_cost, kept))
        # What the key lines left goes to the end, which may now hold some of them, which leaves more.
        wider = _tail_start(text, max(least, len(text) - (room - head_end - key_room)))
        if wider >= tail_start:
            break
        tail_start, keys = wider, [line for line in keys if line.at < wider]
    return _composed(seen, head_end, tail_start, list(_numbered(_fitting(keys, key_room), seen)))


_ROUNDS = 4
_KEY_OPENING = b"[key lines among them:]\n"
_KEY_CLOSING = b"[the end:]\n"


def _composed(seen: _Seen, head_end: int, tail_start: int, keys: list[bytes]) -> str:
    head, tail = seen.text[:head_end], seen.text[tail_start:]
    lines = seen.text.count(b"\n", head_end, tail_start)
    marker = _marker(seen, seen.size - len(head) - len(tail), lines)
    middle = [marker, _KEY_OPENING, *keys, _KEY_CLOSING] if keys else [marker]
    return b"".join([head, b"" if head.endswith(b"\n") or not head else b"\n", *middle, tail]).decode()


def _marker(seen: _Seen, missing: int, lines: int) -> bytes:
    counted = " (seen: its first and last 256 KiB)" if seen.windows else f" ({lines} lines)" if lines else ""
    return f"[… {missing} of {seen.size} bytes left out{counted}{_whereabouts(seen.path)}]\n".encode()


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


def _cost(line: _KeyLine) -> int:
    return min(len(line.text), _KEY_LINE_BYTES) + _NUMBERING_BYTES


def _fitting(lines: list[_KeyLine], room: int) -> list[_KeyLine]:
    """The most important lines that fit, by place."""
    kept: list[_KeyLine] = []
    for line in sorted(lines, key=lambda line: (line.rank, line.at)):
        if _cost(line) <= room:
            room -= _cost(line)
            kept.append(line)
    return sorted(kept)


_NUMBERING_BYTES = 14
"""At most: a sign or a seventh digit, six digits, ``: ``, the ellipsis of a line that was cut, a line end."""


def _numbered(lines: list[_KeyLine], seen: _Seen) -> Iterator[bytes]:
    """``12: text``; lines behind the gap are counted from the end: ``-3: text`` is the last but two."""
    text, gap = seen.text, seen.gap
    at, number = 0, 1
    for line in lines:
        if line.at >= gap and number > 0:
            at, number = gap, -1 - text.count(b"\n", gap, len(text) - 1)
        number += text.count(b"\n", at, line.at)
        at = line.at
        cut = line.text[: _backward(line.text, _KEY_LINE_BYTES)]
        yield b"%d: %s%s\n" % (number, cut, "…".encode() if len(cut) < len(line.text) else b"")
