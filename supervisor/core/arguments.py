"""The text of a call's arguments, read once and strictly. Owns what counts as arguments at all; whether they fit the
tool is `schemas`' business, what a value means to the system (NUL in argv, a path) the worker's.

Rules
1. The text is one JSON object and nothing else. It is forwarded as it came; nothing is ever re-encoded or completed.
2. One repair, recorded: a single Markdown fence around the whole text is taken off, and the text inside is forwarded.
3. Refused, with the parser's own words for the model: cut or trailing text, duplicate keys, NaN and Infinity (a number
   too large for a float is one), half of a surrogate pair, any other value than an object, integers outside
   −2^63 … 2^64−1, nesting deeper than 64.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn

import msgspec

from protocol import InvalidArguments
from protocol._codecs import DEPTH_LIMIT, too_deep

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1
_INTEGER_CHARACTERS = 20
_NAME_SHOWN = 80
_FENCES = ("```", "~~~")
_BEGUN = re.compile(r"-|\.|[eE][+-]?|u[0-9a-fA-F]{0,4}")
"""What a parser cannot read any more of a number or of an escape that ends early."""


class Arguments(msgspec.Struct, frozen=True):
    """``values`` to judge, ``text`` to forward; ``fence_stripped`` when rule 2 made ``text`` shorter than what came."""

    values: dict[str, Any]
    text: str
    fence_stripped: bool = False


def parse(text: str) -> Arguments:
    """The arguments in ``text``. Raises InvalidArguments, whose text says what is wrong and where."""
    inner = text if text.startswith("{") else _without_fence(text)
    values = _decode(inner)
    if type(values) is not dict:
        raise InvalidArguments(f"arguments must be one JSON object, not {_kind(values)}")
    # As many opening brackets as the limit cannot nest deeper than it: the walk is for the few texts with more.
    if inner.count("{") + inner.count("[") > DEPTH_LIMIT and too_deep(values):
        raise InvalidArguments(_TOO_DEEP)
    if "\\u" in inner or not inner.isascii():
        _refuse_half_pairs(values)
    return Arguments(values, inner, inner is not text)


def is_cut(text: str) -> bool:
    """Whether the text ends before its object does, or before the fence around it: more of it was to come."""
    inner = text if text.startswith("{") else _without_fence(text)
    if inner is text and text.lstrip().startswith(_FENCES):
        return text.strip().partition("\n")[2].rpartition("\n")[2].strip() not in _FENCES
    try:
        _decode(inner)
    except InvalidArguments as error:
        cause = error.__cause__
        return isinstance(cause, json.JSONDecodeError) and bool(inner.strip()) and _ends_early(cause)
    return False


def same_form(values: dict[str, Any]) -> bytes:
    """Values in a form that is equal where they are: the order of names and the spaces between them do not count."""
    return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _decode(text: str) -> object:
    try:
        # The usual text starts with its object and ends with it: `decode`'s two scans for white space are spared.
        value, end = _DECODER.raw_decode(text) if text.startswith("{") else (_DECODER.decode(text), len(text))
    except json.JSONDecodeError as error:
        raise InvalidArguments(_said(error)) from error
    except RecursionError as error:
        raise InvalidArguments(_TOO_DEEP) from error
    if end != len(text) and text[end:].strip(" \t\r\n"):
        raise InvalidArguments(_said(json.JSONDecodeError("Extra data", text, end)))
    return value


def _said(error: json.JSONDecodeError) -> str:
    if not error.doc.strip():
        return "arguments are empty; a tool without arguments takes {}"
    return f"arguments are {'cut off' if _ends_early(error) else 'not JSON'}: {error}"


def _ends_early(error: json.JSONDecodeError) -> bool:
    """The parser stopped at the end, in a string that has none, or at the beginning of what it could not know yet."""
    text = error.doc.rstrip()
    rest = text[error.pos :]
    if not rest or error.msg.startswith("Unterminated string"):
        return True
    return any(word.startswith(rest) for word in ("true", "false", "null")) or _BEGUN.fullmatch(rest) is not None


def _without_fence(text: str) -> str:
    """The inside of a fence that opens on the first line and closes on the last; else the text itself."""
    opening, _, rest = text.strip().partition("\n")
    if not opening.startswith(_FENCES):
        return text
    label = opening.lstrip(opening[0])
    fence = opening[: len(opening) - len(label)]
    inside, _, closing = rest.rpartition("\n")
    return inside.strip() if closing.strip() == fence and _is_label(label.strip()) else text


def _is_label(label: str) -> bool:
    return not label or (len(label) <= _NAME_SHOWN and label.replace("-", "").replace("_", "").isalnum())


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise InvalidArguments(f"the key {twice[:_NAME_SHOWN]!r} stands more than once in an object")
    return values


def _integer(digits: str) -> int:
    # Length first: int() of a megabyte of digits is quadratic (and refused by the interpreter with other words).
    if len(digits) > _INTEGER_CHARACTERS or not INTEGER_MIN <= (value := int(digits)) <= INTEGER_MAX:
        raise InvalidArguments(f"the integer {digits[:24]}{'…' * (len(digits) > 24)} is outside −2^63 … 2^64−1")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise InvalidArguments(f"the number {digits[:24]} is too large; Infinity is no JSON value")
    return value


def _constant(word: str) -> NoReturn:
    raise InvalidArguments(f"{word} is no JSON value; only finite numbers are")


def _refuse_half_pairs(values: dict[str, Any]) -> None:
    """Half a surrogate pair is no text: no file, log or other program could take it. Encoding finds it at C speed."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InvalidArguments(f"a string holds {half!r}, half of a surrogate pair") from error


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


_TOO_DEEP = f"arguments nest deeper than {DEPTH_LIMIT}"
_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant, strict=True
)
