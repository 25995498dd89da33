"""What of a captured output the result of ``exec`` shows: text for a context, by the rules that the daemon's views keep
about bytes (`supervisor.core.plain_text`), simpler in what it chooses. It must not cost `exec` an import.
"""

from __future__ import annotations

import codecs
import os

from deadlined.cli.exec_capture import Capture

VIEW_BYTES = 8192
_MARKER_BYTES = 100
_CONTROLS = dict.fromkeys((*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0)))
_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?"


def view(captures: list[Capture]) -> tuple[str, bool]:
    """At most 8 KiB of text: the beginning and the end of each, with a line between them that says what is missing; and
    whether the bytes that it was made from were all UTF-8 (U+FFFD stands for what was not)."""
    shown = [_view_of(capture, VIEW_BYTES // len(captures)) for capture in captures]
    return "".join(text for text, _ in shown), all(valid for _, valid in shown)


def _view_of(capture: Capture, most: int) -> tuple[str, bool]:
    size = capture.size()
    if size <= most:
        whole, valid = _text(os.pread(capture.raw, size, 0), True)
        if len(whole.encode()) <= most:  # each byte that is no text has become three
            return whole, valid
    half = (most - _MARKER_BYTES) // 2
    taken = min(half, size // 2)
    head, head_valid = _text(os.pread(capture.raw, taken, 0), False)
    tail, tail_valid = _text(_from_a_character(os.pread(capture.raw, taken, size - taken)), True)
    marker = f"[… {size - 2 * taken} of {size} bytes are missing here …]"
    return f"{_beginning(head, half)}\n{marker}\n{_end(tail, half)}", head_valid and tail_valid


def _from_a_character(data: bytes) -> bytes:
    """Without what is left at its start of a character that was cut: at most three bytes."""
    start = next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), 0)
    return data[start:]


def _text(data: bytes, whole: bool) -> tuple[str, bool]:
    """What a terminal would have shown in the end, and whether it was UTF-8. Not ``whole``: the last character may be
    cut, and is left out then."""
    try:
        text, valid = codecs.utf_8_decode(data, "strict", whole)[0], True
    except UnicodeDecodeError:
        text, valid = codecs.utf_8_decode(data, "replace", whole)[0], False
    text = text.replace("\0", "\ufffd")
    if "\x1b" in text:
        import re

        text = re.sub(_ESCAPE, "", text)
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text.translate(_CONTROLS), valid


def _beginning(text: str, most: int) -> str:
    return text.encode()[:most].decode(errors="ignore")


def _end(text: str, most: int) -> str:
    return text.encode()[-most:].decode(errors="ignore")
