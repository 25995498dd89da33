"""What a terminal may be sent: text of tools and peers without the characters that steer it."""

from __future__ import annotations

import re
import sys

_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Unicode's embeddings, overrides and isolates: with them a text is shown in another order than it has (UAX #9)."""
_STEERING = dict.fromkeys((*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0), *_REORDERING))


def printable(text: str) -> str:
    """``text`` without control characters (newline and tab stay): no escape sequence survives that, no false order."""
    return text.translate(_STEERING)


def for_stdout(text: str) -> str:
    """``text`` as it is for a pipe or a file, made printable for a terminal."""
    return printable(text) if sys.stdout.isatty() else text


_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|[]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)|[ -/]*+[0-OQ-WYZ\\`-~])|\r(?=\n)"
)
_BEGUN = re.compile(r"(?:\x1b(?:\[[0-?]*+[ -/]*+|[]PX^_][^\x07\x1b\n]*+\x1b?|[ -/]*+)|\r)\Z")
_LONGEST_SEQUENCE = 4_096


class ScreenText:
    """Text that comes in pieces, for a terminal: escape sequences taken out whole, each redrawing a line of its own.

    What a piece ends in the middle of waits for the next one.
    """

    def __init__(self) -> None:
        self._begun = ""

    def __call__(self, text: str, last: bool = False) -> str:
        """What may be shown of ``text`` now. ``last``: nothing more comes."""
        text = _SEQUENCE.sub("", self._begun + text)
        self._begun = ""
        if not last and (begun := _BEGUN.search(text, max(0, len(text) - _LONGEST_SEQUENCE))):
            self._begun, text = text[begun.start() :], text[: begun.start()]
        return printable(text.replace("\r", "\n"))
