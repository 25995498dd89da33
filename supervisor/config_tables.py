"""One table of the configuration file, read field by field. Owns how a value may be written and how a refusal is said.

A field that is called ``ms`` or ends in ``_ms`` takes a whole number of milliseconds or a duration (``"5s"``); a size
takes a whole number of bytes or a text (``"64MiB"``). A field that may be without a limit takes ``"none"``, because
TOML has no null.
Every refusal names the key's path and what is allowed: a person wrote the key and will correct it.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from protocol import QuantityError, parse_duration_ms, parse_size_bytes

NO_LIMIT = "none"
_SIZES = ("_bytes", "frame_limit")
_SHOWN = 60


class ConfigError(ValueError):
    """The configuration cannot be used; the text names the key by its path and says what is allowed."""


def read_fields(table: object, kinds: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The values of a table, each of its kind (a type that msgspec knows). ``place`` is the table's path in the file.

    Raises ConfigError for anything that is no table, a key that is not in ``kinds``, a value not of its kind.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{place} = {shown(table)} is not allowed; allowed: a table")
    for name in table:
        if name not in kinds:
            raise ConfigError(f"{place}.{name} is no setting; allowed in {place}: {', '.join(sorted(kinds))}")
    return {name: _read(value, kinds[name], name, f"{place}.{name}") for name, value in table.items()}


def shown(value: object) -> str:
    """A value as an error may show it: short."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _read(value: object, kind: Any, name: str, place: str) -> Any:
    if isinstance(value, str):
        value = _quantity(value, kind, name, place)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, inner = str(error).partition(" - at `$")
        said = f"{place}{inner.rstrip('`')} = {shown(value)} is not allowed ({what.replace('`', '')})"
        raise ConfigError(said + _choices(kind)) from error


def _quantity(text: str, kind: Any, name: str, place: str) -> object:
    """What a text stands for in a field that is a number."""
    if text == NO_LIMIT and type(None) in typing.get_args(kind) and text not in _words(kind):
        return None
    try:
        if name == "ms" or name.endswith("_ms"):
            return parse_duration_ms(text)
        return parse_size_bytes(text) if name.endswith(_SIZES) else text
    except QuantityError as error:
        raise ConfigError(f"{place}: {error}") from error


def _choices(kind: Any) -> str:
    words = _words(kind)
    return f"; allowed: {', '.join(words)}" if words else ""


def _words(kind: Any) -> list[str]:
    """Those that a field may be, where it may be some only."""
    parts = (kind, *typing.get_args(kind))
    literal = [word for part in parts if typing.get_origin(part) is typing.Literal for word in typing.get_args(part)]
    named = [word.value for part in parts if isinstance(part, type) and issubclass(part, Enum) for word in part]
    return literal + named
