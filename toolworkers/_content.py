"""A Python tool's value → the content of its result: what JSON can express, nested at most 64 deep, fitting a frame."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol._content import content_fault
from protocol._framing import FRAME_LIMIT
from toolworkers._tools import ToolError

CONTENT_LIMIT = FRAME_LIMIT - (16 << 10)
"""Bytes of content in one frame; the rest of the frame is the result's other fields."""
_UNSAYABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def to_content(value: Any) -> Any:
    """``value`` as null, booleans, numbers, text, lists and objects with text keys.

    Structs, dataclasses, sets, dates and bytes (base64) are converted. Raises ToolError(code="content") for all else:
    no JSON form, NaN or infinity, integers outside −2^63 … 2^64−1, nesting over 64, more than fits a frame.
    """
    try:
        packed = msgspec.msgpack.encode(msgspec.to_builtins(value, str_keys=True))
        plain = msgspec.msgpack.decode(packed)  # as the daemon will read it: a tuple is a list from here on
    except _UNSAYABLE as error:
        raise _refused(f"cannot be expressed ({error})") from error
    if fault := content_fault(plain):
        raise _refused(fault)
    if len(packed) > CONTENT_LIMIT:
        raise _refused(
            f"has {len(packed)} bytes and at most {CONTENT_LIMIT} are allowed; write large results to a file"
        )
    return plain


def _refused(why: str) -> ToolError:
    return ToolError(f"the tool's return value {why}", code="content")
