"""What a tool may answer with: what JSON can express, nested at most so deep.

msgpack can say more (bytes, dates, NaN, keys that are numbers or lists), and what it can say a hostile tool will. Such
a value would break, or change on the way to, a client that speaks JSON, so it is the worker's fault when it is heard.
The walks go level by level, without recursion, and let C do the counting: the value is a stranger's, a MiB of it.
"""

from __future__ import annotations

from itertools import chain
from math import isfinite
from typing import Any

DEPTH_LIMIT = 64
"""How deep arguments and content may nest: ``[]`` is 1, ``[[]]`` is 2."""
_TEXT = frozenset((str,))
_BOXES = frozenset((dict, list))
_PLAIN = frozenset((type(None), bool, int, float, str)) | _BOXES
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def too_deep(value: object, limit: int = DEPTH_LIMIT) -> bool:
    """Whether containers nest deeper than ``limit``."""
    level: list[Any] = [value]
    for _ in range(limit + 1):
        boxes = [item for item in level if isinstance(item, (dict, list, tuple))]
        if not boxes:
            return False
        level = _inside(boxes)
    return True


def content_fault(value: object, limit: int = DEPTH_LIMIT) -> str | None:
    """What keeps ``value`` from being content, as the rest of a sentence; None when nothing does."""
    level: list[Any] = [value]
    for _ in range(limit + 1):
        kinds = frozenset(map(type, level))
        if fault := _flat_fault(kinds, level):
            return fault
        if not kinds & _BOXES:
            return None
        boxes = [item for item in level if type(item) in _BOXES]
        keys = chain.from_iterable(box for box in boxes if type(box) is dict)
        if not frozenset(map(type, keys)) <= _TEXT:
            return "has a key that is not text"
        level = _inside(boxes)
    return f"nests deeper than {limit}"


def _flat_fault(kinds: frozenset[type], level: list[Any]) -> str | None:
    if foreign := kinds - _PLAIN:
        return f"holds a value that JSON cannot express ({min(kind.__name__ for kind in foreign)})"
    if float in kinds and not all(isfinite(item) for item in level if type(item) is float):
        return "holds NaN or an infinity"
    if int in kinds and not all(_LEAST <= item <= _MOST for item in level if type(item) is int):
        return "holds an integer outside −2^63 … 2^64−1"
    return None


def _inside(boxes: list[Any]) -> list[Any]:
    return list(chain.from_iterable([box.values() if isinstance(box, dict) else box for box in boxes if box]))
