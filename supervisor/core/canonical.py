"""JSON values as bytes to be compared: equal bytes for values that mean the same, other bytes for all others. Pure.

Rules
1. The bytes are JSON without blanks, keys sorted by code point, strings as UTF-8. JSON tells its types apart by itself.
2. Strings and keys are in NFC. An object in which that would make two keys one keeps its keys as they came.
3. A float that is a whole number below 2^53 in size is that integer, −0.0 is 0. From 2^53 on floats and integers stay
   apart: nobody can say any more which integer a float was meant to be.
4. What a role has spelled anew (`spellings`) comes in as `msgspec.Raw` with a capital letter in front, which begins no
   JSON value. It is taken as it is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

_EXACT = 2.0**53
_encode = msgspec.json.Encoder(order="deterministic").encode
_FRACTIONLESS = re.compile(rb"\.0(?=[],}]|$)")
"""How the encoder writes a float that rule 3 is about; a text may hold it too, which costs time and no more."""


def canonical(value: Any) -> bytes:
    """The bytes of a JSON value (dict, list, str, int of 64 bits, finite float, bool, None) or of a Raw piece."""
    data = _encode(value)
    return data if _is_canonical(data) else _encode(_normal(value))


def canonical_text(text: str) -> str:
    """A string as rule 2 wants it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _is_canonical(data: bytes) -> bool:
    """Whether nothing in it needs rules 2 and 3. What is in NFC as a whole is so in each of its parts (UAX 15)."""
    if _FRACTIONLESS.search(data):
        return False
    return data.isascii() or unicodedata.is_normalized("NFC", data.decode())


def _normal(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return canonical_text(value)
    if kind is float:
        return int(value) if -_EXACT < value < _EXACT and value.is_integer() else value
    if kind is list:
        return [_normal(item) for item in value]
    return _normal_object(value) if kind is dict else value


def _normal_object(value: dict[str, Any]) -> dict[str, Any]:
    normal = {canonical_text(key): _normal(item) for key, item in value.items()}
    return normal if len(normal) == len(value) else {key: _normal(item) for key, item in value.items()}
