"""What a terminal may be sent: text of tools and peers without the characters that steer it."""

from __future__ import annotations

import sys

_STEERING = dict.fromkeys((*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0)))


def printable(text: str) -> str:
    """``text`` without control characters (newline and tab stay): no escape sequence survives that."""
    return text.translate(_STEERING)


def for_stdout(text: str) -> str:
    """``text`` as it is for a pipe or a file, made printable for a terminal."""
    return printable(text) if sys.stdout.isatty() else text
