"""Which lines of a long output are worth more than their place: those that say what went wrong.

Rules
1. A key line holds one of a few words, in any case. Of each distinct message (numbers do not distinguish) the first and
   the last line are key; failures go before remarks when both do not fit, first lines before last ones.
2. Words are searched, not a regular expression (which would take 26 ms over two windows and hold the GIL; this takes
   about 2), and what is said very often is looked at from both ends only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FAILURES = (b"error", b"fail", b"exception", b"traceback", b"panic", b"assert", b"denied")
_REMARKS = (b"warning", b"exit")
_HITS_OF_A_WORD = 128
"""Looked at from each end of the middle: what is said more often than that does not fit anyway."""
_LINE_BYTES = 240
_NUMBERING_BYTES = 16
"""At most: ten digits, or nine and a sign, ``: ``, the ellipsis of a line that was cut, a line end."""
_NUMBER = re.compile(rb"0x[0-9a-f]+|[0-9]+")
_ELLIPSIS = "…".encode()


class KeyLine(NamedTuple):
    """A line worth keeping. ``at``: its offset in the text. ``rank``: smaller is kept first."""

    at: int
    rank: int
    text: bytes

    @property
    def cost(self) -> int:
        """The most bytes that it takes in a view."""
        return min(len(self.text), _LINE_BYTES) + _NUMBERING_BYTES

    def numbered(self, number: int) -> bytes:
        """``12: text``, cut between code points when it is long."""
        end = _LINE_BYTES if len(self.text) > _LINE_BYTES else len(self.text)
        while 0 < end < len(self.text) and self.text[end] & 0xC0 == 0x80:
            end -= 1
        return b"%d: %s%s\n" % (number, self.text[:end], _ELLIPSIS if end < len(self.text) else b"")


def key_lines(text: bytes, start: int, end: int, gap: int) -> list[KeyLine]:
    """First and last line of each message between ``start`` and ``end``, by place. No line crosses ``gap``."""
    found: dict[int, KeyLine] = {}
    for low, high in ((start, min(gap, end)), (max(gap, start), end)):
        region = text[low:high].lower()
        for rank, words in ((0, _FAILURES), (2, _REMARKS)):
            for at, stop in {line for word in words for line in _lines_with(word, region)}:
                found.setdefault(low + at, KeyLine(low + at, rank, text[low + at : low + stop]))
    return _first_and_last(sorted(found.values()))


def fitting(lines: list[KeyLine], room: int) -> list[KeyLine]:
    """The most important lines that fit, by place."""
    kept: list[KeyLine] = []
    for line in sorted(lines, key=lambda line: (line.rank, line.at)):
        if line.cost <= room:
            room -= line.cost
            kept.append(line)
    return sorted(kept)


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


def _first_and_last(lines: list[KeyLine]) -> list[KeyLine]:
    first: dict[bytes, KeyLine] = {}
    last: dict[bytes, KeyLine] = {}
    for line in lines:
        message = _NUMBER.sub(b"#", line.text[:_LINE_BYTES].strip().lower())
        first.setdefault(message, line)
        last[message] = line
    repeats = (line._replace(rank=line.rank + 1) for message, line in last.items() if line is not first[message])
    return sorted([*first.values(), *repeats])
