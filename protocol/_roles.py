"""What an argument of a tool *is*, where its JSON type does not say it: a path, a command, a secret. Owns the words,
how a field is named, and which fields of a schema there are. What a role does to a comparison is the daemon's
(``supervisor/core/call_form.py``).

A field is named by its way from the top, with dots: ``options.target`` is the field ``target`` of the object
``options``. Lists are passed through: ``files.path`` is the field ``path`` of every object in the list ``files``. A
role of a list is one of its elements, except ``set``, ``volatile`` and ``secret``, which are the list's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

Role = Literal["path", "realpath", "command", "url", "set", "volatile", "secret"]
_OF_TEXTS = ("path", "realpath", "command", "url")
_NAMES_SHOWN = 20
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def refuse_unfit_roles(roles: Mapping[str, Role], tool: str, schema: dict[str, Any]) -> None:
    """Raise ValueError for a role of a field that the tool's schema does not have, or that can never have it."""
    for name, role in roles.items():
        found = field_schemas(schema, name.split("."))
        if not found:
            raise ValueError(
                f"roles has {name!r}, which is no argument of {tool}; there are:"
                f" {', '.join(_names(schema)[:_NAMES_SHOWN]) or 'none'}"
            )
        wanted = "string" if role in _OF_TEXTS else "array"
        kinds = {kind for one in found for kind in _kinds(one, schema, wanted == "string")}
        if role in (*_OF_TEXTS, "set") and kinds and wanted not in kinds:
            allowed = "a text, or a list of texts" if wanted == "string" else "a list"
            raise ValueError(f"roles.{name} = {role!r} is not allowed; allowed: only for {allowed}")


def field_schemas(schema: dict[str, Any], way: list[str]) -> list[dict[str, Any]]:
    """The schemas of the field at the end of ``way``: none, one, or several where alternatives have it."""
    found = [schema]
    for name in way:
        below = [each for one in found for each in _alternatives(one, schema, through_lists=True)]
        found = [one["properties"][name] for one in below if name in one.get("properties", ())]
    return found


def _names(schema: dict[str, Any]) -> list[str]:
    return sorted({name for one in _alternatives(schema, schema, True) for name in one.get("properties", ())})


def _kinds(schema: dict[str, Any], root: dict[str, Any], through_lists: bool) -> set[str]:
    """JSON types that a value may have, as far as the schema says so: empty when an alternative leaves it open."""
    kinds: set[str] = set()
    for one in _alternatives(schema, root, through_lists):
        kind = one.get("type")
        if kind is not None:
            kinds.update([kind] if isinstance(kind, str) else kind)
        elif "enum" in one:
            kinds.update("string" if isinstance(value, str) else "other" for value in one["enum"])
        elif not any(word in one for word in (*_ALTERNATIVES, "$ref")):
            return set()
    return kinds


def _alternatives(schema: Any, root: dict[str, Any], through_lists: bool) -> Iterator[dict[str, Any]]:
    """A schema and every other that stands for the same value (or, ``through_lists``, for an element of it)."""
    waiting, seen = [schema], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [each for word in _ALTERNATIVES for each in one.get(word, ())]
        if through_lists:
            waiting += [one.get("items"), *one.get("prefixItems", ())]
        if isinstance(one.get("$ref"), str):
            waiting.append(root.get("$defs", {}).get(one["$ref"].removeprefix("#/$defs/")))
