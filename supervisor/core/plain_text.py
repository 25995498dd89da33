"""What programs write → text: what a terminal would have shown in the end, and whether it is text at all.

Rules
1. Escape sequences and other control characters go; of what a carriage return or a backspace overwrites the last
   writing stays. Line ends and tabs stay, and no line end comes or goes: numbers of lines hold for the raw output too.
2. Bytes that are no UTF-8, and NUL, become U+FFFD.
3. Binary is what has more than a tenth of bytes that no text has, or some and the beginning of a known format.
4. Work is linear and done in pieces: a substitution holds the GIL until its end, and hostile text is all escapes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_PIECE_BYTES = 32 << 10
_SAMPLE_BYTES = 64 << 10
_BINARY_SHARE = 0.1
_FORGIVEN = 4
"""Odd bytes that text may have, however short: what a window's edges leave of two characters, or a stray byte."""
_LONGEST_CODE_POINT = 4

_ESCAPE = re.compile(rb"\x1b++(?:\[[0-?]*+[ -/]*+[@-~]|[]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?|[ -/]*+[0-~])?")
_STRUCK_OVER = re.compile(rb"(?:[\xc0-\xff][\x80-\xbf]*+|[^\x08\n])\x08")
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_CONTROLS = bytes(code for code in (*range(32), 127) if code not in b"\n\t")
_ODD_CONTROLS = bytes(code for code in _CONTROLS if code not in b"\r\x08\x0c\x1b")
_REPLACEMENT = "\ufffd".encode()
_UTF16 = "UTF-16 text"
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
    (b"\xff\xfe", _UTF16),
    (b"\xfe\xff", _UTF16),
)


def cleaned(raw: bytes) -> bytes:
    """Rules 1 and 2: valid UTF-8 without control characters other than line ends and tabs."""
    if any(mark in raw for mark in (b"\x1b", b"\r", b"\x08")):
        raw = b"".join(map(_without_overwriting, _pieces(raw)))
    if b"\0" in raw:
        raw = raw.replace(b"\0", _REPLACEMENT)
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


def is_utf8(head: bytes, tail: bytes) -> bool:
    """Whether both are UTF-8. With a ``tail`` they are windows of something larger, whose edges may cut a character."""
    if not tail:
        return _decodes(head, whole=True)
    return _decodes(head, whole=False) and _decodes(tail[_cut_start(tail) :], whole=True)


def _decodes(raw: bytes, whole: bool) -> bool:
    """``whole`` False: the last character may be cut."""
    try:
        codecs.utf_8_decode(raw, "strict", whole)
    except UnicodeDecodeError:
        return False
    return True


def _cut_start(raw: bytes) -> int:
    """How many bytes at the start can be the rest of a character."""
    start = 0
    while start < min(_LONGEST_CODE_POINT - 1, len(raw)) and raw[start] & 0xC0 == 0x80:
        start += 1
    return start


def is_binary(raw: bytes) -> bool:
    """Rule 3."""
    sample = raw[:_SAMPLE_BYTES]
    kind = kind_of(raw)
    if kind is not None and kind != _UTF16 and (b"\0" in sample or not _decodes(sample, whole=False)):
        return True
    odd = len(sample) - len(sample.translate(None, _ODD_CONTROLS))
    if not sample.isascii():
        odd += sample.decode("utf-8", "replace").count("\ufffd") - sample.count(_REPLACEMENT)
    return odd > _BINARY_SHARE * len(sample) + _FORGIVEN


def kind_of(raw: bytes) -> str | None:
    """What begins so, in words; None when nobody knows."""
    return next((name for magic, name in _MAGIC if raw.startswith(magic)), None)
