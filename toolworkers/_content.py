"""A Python tool's value → the content of its result: what JSON can express, nested at most 64 deep, fitting a frame."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from protocol._codecs import DEPTH_LIMIT, too_deep
from protocol._framing import FRAME_LIMIT
from toolworkers._tools import ToolError

CONTENT_LIMIT = FRAME_LIMIT - (16 << 10)
"""Bytes of content in one frame; the rest of the frame is the result's other fields."""
_AS_IT_IS = (type(None), bool, int, float, str)
_UNSAYABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, UnicodeError)
_strict_json = json.JSONEncoder(allow_nan=False, check_circular=False, ensure_ascii=False)


def to_content(value: Any) -> Any:
    """``value`` as null, booleans, numbers, text, lists and objects with text keys.

    Structs, dataclasses, sets, dates and bytes (base64) are converted. Raises ToolError(code="content") for all else:
    no JSON form, NaN or infinity, integers outside −2^63 … 2^64−1, nesting over 64, more than fits a frame.
    """
    try:
        plain = value if type(value) in _AS_IT_IS else msgspec.to_builtins(value, str_keys=True)
        if too_deep(plain):
            raise _refused(f"nests deeper than {DEPTH_LIMIT}")
        _strict_json.encode(plain)
        size = len(msgspec.msgpack.encode(plain))
    except _UNSAYABLE as error:
        raise _refused(f"cannot be expressed ({error})") from error
    if size > CONTENT_LIMIT:
        raise _refused(f"has {size} bytes and at most {CONTENT_LIMIT} are allowed; write large results to a file")
    return plain


def _refused(why: str) -> ToolError:
    return ToolError(f"the tool's return value {why}", code="content")
