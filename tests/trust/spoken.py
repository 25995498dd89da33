"""Random messages of a link, built from the message types themselves: a new message or field is covered unasked.

Owns what a well-formed message can look like. Left to others: sending it, breaking it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect as kinds

_TEXTS = ("", "a", "shell", "sleep 100", "both", "Ü", "\u2028", "x" * 300, '"\\\n', "\U0001f600")
_WHOLE = (0, 1, 2, 23, 127, 128, 255, 256, 65_535, 65_536, 2**31, 2**32, 2**53, 2**63 - 1)
_BUDGETS = (1, 250, 10_000, 3_600_000)
_FLOATS = (0.0, -0.0, 0.5, 1e300, -2.25, 5e-324)
_TRIES = 1_000


def speaker_of(union: Any) -> Callable[[random.Random], Any]:
    """A function that says one random message of ``union`` (a Struct type or a union of them)."""
    info = kinds.type_info(union)
    structs = info.types if isinstance(info, kinds.UnionType) else (info,)
    return lambda rng: _value(rng.choice(structs), rng)


def each_of(union: Any, rng: random.Random) -> list[Any]:
    """One random message of every type in ``union``."""
    info = kinds.type_info(union)
    return [_value(kind, rng) for kind in (info.types if isinstance(info, kinds.UnionType) else (info,))]


def json_value(rng: random.Random, depth: int = 3) -> Any:
    """A random value that JSON can express."""
    match rng.randrange(8 if depth else 5):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2:
            return rng.choice(_WHOLE) - rng.choice((0, 2**62))
        case 3:
            return rng.choice(_FLOATS)
        case 4:
            return rng.choice(_TEXTS)
        case 5 | 6:
            return [json_value(rng, depth - 1) for _ in range(rng.randrange(4))]
        case _:
            return {rng.choice(_TEXTS): json_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def _value(kind: Any, rng: random.Random) -> Any:
    match kind:
        case kinds.StructType(cls=cls, fields=fields):
            return _struct(cls, fields, rng)
        case kinds.UnionType(types=types):
            return _value(rng.choice(types), rng)
        case kinds.ListType(item_type=item) | kinds.VarTupleType(item_type=item):
            items = [_value(item, rng) for _ in range(rng.randrange(3))]
            return tuple(items) if isinstance(kind, kinds.VarTupleType) else items
        case kinds.DictType(value_type=item):
            return {rng.choice(_TEXTS): _value(item, rng) for _ in range(rng.randrange(3))}
        case kinds.LiteralType(values=values):
            return rng.choice(values)
        case kinds.EnumType(cls=cls):
            return rng.choice(list(cls))
        case _:
            return _scalar(kind, rng)


def _struct(cls: Any, fields: Any, rng: random.Random) -> Any:
    """A struct may refuse what its types allow; then another one."""
    for _ in range(_TRIES):
        chosen = [field for field in fields if field.required or rng.random() < 0.5]
        with contextlib.suppress(ValueError):
            return cls(**{field.name: _field(field.name, field.type, rng) for field in chosen})
    raise NotImplementedError(f"no random value that {cls.__name__} takes in {_TRIES}")


def _field(name: str, kind: Any, rng: random.Random) -> Any:
    if isinstance(kind, kinds.UnionType):
        kind = rng.choice(kind.types)
    if name.endswith("_ms") and isinstance(kind, kinds.IntType):
        return _within(kind, rng.choice(_BUDGETS))  # a contract refuses others
    return _value(kind, rng)


def _within(kind: kinds.IntType, value: int) -> int:
    least = max(kind.ge or 0, value)
    return least if kind.le is None else min(kind.le, least)


def _scalar(kind: Any, rng: random.Random) -> Any:
    match kind:
        case kinds.IntType():
            return _within(kind, rng.choice(_WHOLE))
        case kinds.FloatType():
            return rng.choice(_FLOATS)
        case kinds.StrType(max_length=longest):
            return rng.choice(_TEXTS)[:longest]
        case kinds.BytesType():
            return rng.randbytes(rng.randrange(40))
        case kinds.BoolType():
            return rng.random() < 0.5
        case kinds.NoneType():
            return None
        case kinds.AnyType():
            return json_value(rng)
    raise NotImplementedError(f"no random value for {kind}")


def same(one: Any, other: Any) -> bool:
    """Whether two messages say the same; a float that was an integer's worth may have become the integer in JSON."""
    return bool(msgspec.to_builtins(one) == msgspec.to_builtins(other))
