"""Server-sent events: bytes → events. Pure; who reads the bytes and what the events mean is others' business.

Rules (the "Interpreting an event stream" section of the HTML standard)
1. A line ends with CR, LF or both, and with nothing else: the line separators of Unicode are text. (Readers of lines
   made for people split there, and a JSON text with one in it would fall apart.)
2. ``data`` lines of an event are joined by LF, ``event`` names it, an empty line ends it. Other fields and comments
   are left out. An event without data is none.
3. What stands after the last empty line is no event: the stream was cut in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_BYTES = 8 << 20
"""Of one event: no model says more in one piece, and a line that never ends must not fill the memory."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"


class ServerEvent(NamedTuple):
    """``name`` is empty where the stream gives none."""

    name: str
    data: str


class EventSizeError(ValueError):
    """One event of more than `MOST_BYTES`."""


class EventStream:
    """One stream, from its first byte."""

    def __init__(self) -> None:
        self._rest, self._after_cr, self._at_start = bytearray(), False, True
        self._name, self._data, self._bytes = "", list[str](), 0

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that end in this piece. Raises EventSizeError."""
        if self._after_cr and piece.startswith(b"\n"):
            piece, self._after_cr = piece[1:], False
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        events = [event for line in self._lines(piece) if (event := self._line(line)) is not None]
        if len(self._rest) + self._bytes > MOST_BYTES:
            raise EventSizeError(f"an event is larger than {MOST_BYTES} bytes")
        return events

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        """The lines that end in it. Only the piece is looked through: a long line in many pieces costs its length."""
        first, *others = _LINE_END.split(piece)
        self._rest += first
        for other in others:
            yield bytes(self._rest)
            self._rest[:] = other

    def _line(self, line: bytes) -> ServerEvent | None:
        if self._at_start:
            line, self._at_start = line.removeprefix(_MARK), False
        if not line:
            return self._ended()
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
            self._bytes += len(line)
        elif field == b"event":
            self._name = text
        return None

    def _ended(self) -> ServerEvent | None:
        event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._bytes = "", [], 0
        return event
