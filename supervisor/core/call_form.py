"""The form in which calls of one tool are compared: what of the arguments counts, and how each field is spelled. Pure.

Rules
1. Left out: what is volatile, and a field of the arguments that equals its schema's default (absent is the same call).
   A default deeper down is not looked for: such fields are compared as they are.
2. A role spells a text, or each text of a list (`protocol._roles` says how fields are named); a value of another type
   stays as it is. Each spelling has a letter in front, so that no two roles and no plain value ever meet:
   P path, U url, C command (a list of its words, or the text of a complex one), S set, K secret.
3. ``~`` is spelled out only for tools that see the user's HOME: in any other it is a directory of the worker's own.
4. A secret is its HMAC-SHA256 under a key of the run: equal within the run, and nothing to be found outside of it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from protocol._contracts import ToolDescription
from protocol._roles import Role, field_schemas
from supervisor.core.canonical import canonical
from supervisor.core.command_words import trimmed, words_of
from supervisor.core.contract_hash import contract_hash
from supervisor.core.spellings import rooted, spelled_address, spelled_path


class Surroundings(NamedTuple):
    """What a comparison needs beside the arguments. ``cwd``: where the call runs, absolute; empty: in a directory of
    its own. ``home``: the user's. ``secret_key``: the run's. ``real_paths``: by the texts that
    `CallForm.paths_to_resolve` names."""

    cwd: str
    home: str
    secret_key: bytes
    real_paths: Mapping[str, str] = MappingProxyType({})


class _Field(msgspec.Struct):
    """One field with something to do. ``default``: as the schema has it; ``plain``: its bytes, None without one."""

    role: Role | None = None
    default: Any = None
    plain: bytes | None = None
    below: dict[str, _Field] = {}


class CallForm:
    """Made once for a tool; then `reduced` for each call. ``contract_hash``: the tool's, 64 digits."""

    __slots__ = ("_fields", "_home", "_resolves", "_started", "contract_hash")

    def __init__(self, tool: ToolDescription) -> None:
        self.contract_hash = contract_hash(tool)
        self._started = hashlib.sha256(f"deadlined.fp.v1\0{tool.name}\0{self.contract_hash}\0".encode())
        self._home = tool.contract.home == "user"
        self._resolves = "realpath" in tool.contract.roles.values()
        self._fields: dict[str, _Field] = {}
        for name, schema in tool.schema.get("properties", {}).items():
            if isinstance(schema, dict) and "default" in schema:
                self._fields[name] = _Field(default=schema["default"], plain=canonical(schema["default"]))
        for name, role in tool.contract.roles.items():
            if field_schemas(tool.schema, name.split(".")):
                self._place(name.split("."), role)

    def _place(self, way: list[str], role: Role) -> None:
        fields = self._fields
        for name in way[:-1]:
            fields = fields.setdefault(name, _Field()).below
        fields.setdefault(way[-1], _Field()).role = role

    def fingerprint(self, values: dict[str, Any], around: Surroundings) -> str:
        """64 digits of this call: what was compared, the tool, its contract, and the place where it runs."""
        found = self._started.copy()
        place = spelled_path(around.cwd, "", "").encode("utf-8", "surrogatepass")
        found.update(place + b"\0" + self.reduced(values, around))
        return found.hexdigest()

    def reduced(self, values: dict[str, Any], around: Surroundings) -> bytes:
        """The canonical bytes of what counts of these (valid) arguments."""
        if not self._fields:
            return canonical(values)
        return canonical(_reduced(values, self._fields, around if self._home else around._replace(home="")))

    def paths_to_resolve(self, values: dict[str, Any], around: Surroundings) -> dict[str, str]:
        """The texts with role ``realpath``, each with its path from the root, whose links somebody is to follow. Not
        there: what starts in no known place (``~``: rule 3), and what is no path."""
        if not self._resolves:
            return {}
        home = around.home if self._home else ""
        full = {text: rooted(text, around.cwd, home) for text in _paths(values, self._fields) if "\0" not in text}
        return {text: path for text, path in full.items() if path.startswith("/")}


def _reduced(value: Any, fields: dict[str, _Field], around: Surroundings) -> Any:
    if type(value) is list:
        return [_reduced(item, fields, around) for item in value]
    if type(value) is not dict:
        return value
    kept = {}
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            kept[name] = item
        elif field.role != "volatile" and not _is_default(item, field, around):
            kept[name] = _spelled(item, field, around)
    return kept


def _is_default(value: Any, field: _Field, around: Surroundings) -> bool:
    if field.plain is None or canonical(value) == field.plain:
        return field.plain is not None
    if field.role is None or type(value) is not type(field.default):
        return False
    return canonical(_spelled(value, field, around)) == canonical(_spelled(field.default, field, around))


def _spelled(value: Any, field: _Field, around: Surroundings) -> Any:
    if field.below:
        value = _reduced(value, field.below, around)
    if field.role is None:
        return value
    return _SPELLINGS[field.role](value, around)


def _each(letter: str, spell: Callable[[str, Surroundings], str]) -> Callable[[Any, Surroundings], Any]:
    """A spelling of a text, or of every text of a list."""

    def spelled(value: Any, around: Surroundings) -> Any:
        if type(value) is list:
            return [spelled(item, around) for item in value]
        return _tagged(letter, canonical(_sayable(spell(value, around)))) if type(value) is str else value

    return spelled


def _tagged(letter: str, data: bytes) -> msgspec.Raw:
    return msgspec.Raw(letter.encode() + data)


def _sayable(text: str) -> str:
    """A file may have a name that is no text: its bytes come as half surrogates, which JSON does not have."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace")


def _path(text: str, around: Surroundings) -> str:
    return spelled_path(text, around.cwd, around.home)


def _real_path(text: str, around: Surroundings) -> str:
    return around.real_paths.get(text) or _path(text, around)


def _address(text: str, _around: Surroundings) -> str:
    return spelled_address(text)


def _command(value: Any, around: Surroundings) -> Any:
    if type(value) is list:
        return [_command(item, around) for item in value]
    if type(value) is not str:
        return value
    words = words_of(value)
    # The text of a complex command is not even put into NFC: that can make a separator out of a letter.
    return _tagged("C", canonical(words) if words is not None else msgspec.json.encode(trimmed(value)))


def _set(value: Any, _around: Surroundings) -> Any:
    if type(value) is not list:
        return value
    return _tagged("S", b"[" + b",".join(sorted({canonical(item) for item in value})) + b"]")


def _secret(value: Any, around: Surroundings) -> Any:
    return _tagged("K", b'"' + hmac.digest(around.secret_key, canonical(value), "sha256").hex().encode() + b'"')


def _unchanged(value: Any, _around: Surroundings) -> Any:
    return value


_SPELLINGS: dict[Role, Callable[[Any, Surroundings], Any]] = {
    "path": _each("P", _path),
    "realpath": _each("P", _real_path),
    "url": _each("U", _address),
    "command": _command,
    "set": _set,
    "secret": _secret,
    "volatile": _unchanged,
}


def _paths(value: Any, fields: dict[str, _Field]) -> Iterator[str]:
    for item in value if type(value) is list else ():
        yield from _paths(item, fields)
    for name, field in fields.items() if type(value) is dict else ():
        if field.role == "realpath":
            yield from _texts(value.get(name))
        if field.below:
            yield from _paths(value.get(name), field.below)


def _texts(value: Any) -> Iterator[str]:
    if type(value) is str:
        yield value
    for item in value if type(value) is list else ():
        yield from _texts(item)
