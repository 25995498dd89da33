"""A Python tool's value → the content of its result: what JSON can express, nested at most 64 deep, fitting a frame."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol._content import content_fault
from protocol._framing import FRAME_LIMIT
from toolworkers._tools import ToolError

CONTENT_LIMIT = FRAME_LIMIT - (16 << 10)
"""Bytes of content in one frame; the rest of the frame is the result's other fields."""


class ContentTooLarge(ToolError):  # noqa: N818  # said as the event it is
    """A value of ``size`` bytes, more than a frame takes."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the tool's return value has {size} bytes and at most {CONTENT_LIMIT} are allowed; "
            "write large results to a file",
            code="content",
        )
        self.size = size


_UNSAYABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def to_content(value: Any, limit: int = CONTENT_LIMIT) -> Any:
    """``value`` as null, booleans, numbers, text, lists and objects with text keys.

    Structs, dataclasses, sets, dates and bytes (base64) are converted. Raises ToolError(code="content") for all else:
    no JSON form, NaN or infinity, integers outside −2^63 … 2^64−1, nesting over 64; ContentTooLarge, which is one too,
    for more bytes than fit a frame or ``limit``, whichever is less.
    """
    try:
        packed = msgspec.msgpack.encode(msgspec.to_builtins(value, str_keys=True))
        if len(packed) > min(limit, CONTENT_LIMIT):
            raise ContentTooLarge(len(packed))
        plain = msgspec.msgpack.decode(packed)  # as the daemon will read it: a tuple is a list from here on
    except _UNSAYABLE as error:
        raise _refused(f"cannot be expressed ({error})") from error
    if fault := content_fault(plain):
        raise _refused(fault)
    return plain


def _refused(why: str) -> ToolError:
    return ToolError(f"the tool's return value {why}", code="content")
