"""What the operator's rules say of a call: let it go on, ask a person first, or refuse it. Pure.

Rules
1. A rule is about the tools whose names its glob matches, and, with ``when``, about calls whose validated arguments
   have a matching value at every path it names. ``argv.0`` is a path; a step ``*`` is any item of a list or table.
2. Globs are case-sensitive and cover the whole value; ``*`` also matches ``/`` and line ends. A number, ``true``,
   ``false`` and ``null`` are compared as JSON writes them. A list, a table and what is absent match nothing.
3. deny > ask > allow. No rule that matches is the same as ``allow``: then the tool's own contract decides about asking.
4. The version is a digest of the rules as they are: whoever has the same version has had the same answers.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

_VERSION_HEX = 16
_TOOLS_REMEMBERED = 4_096


class Action(StrEnum):
    """What a rule wants."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[policy]]``. ``when``: glob by path; all must match. ``reason``: told to whoever is asked or refused."""

    tool: str
    action: Action
    when: dict[str, str] = {}
    reason: str = ""


class Ruling(NamedTuple):
    """What the policy says of one call."""

    action: Action
    reason: str = ""


NO_OBJECTION = Ruling(Action.ALLOW)
_RANK = {Action.ALLOW: 0, Action.ASK: 1, Action.DENY: 2}


def stricter(one: Action, other: Action) -> bool:
    """Whether ``one`` lets less go on than ``other``."""
    return _RANK[one] > _RANK[other]


class _Compiled(NamedTuple):
    rule: Rule
    conditions: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]


class Policy:
    """The rules of a configuration, in its order; of those that match equally strict ones, the first gives the
    reason."""

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self.version = hashlib.sha256(msgspec.json.encode(rules)).hexdigest()[:_VERSION_HEX]
        self._rules = [(_glob(rule.tool), _compiled(rule)) for rule in rules]
        self._of_tool: dict[str, tuple[_Compiled, ...]] = {}

    def ruling(self, tool: str, values: Callable[[], dict[str, Any]]) -> Ruling:
        """What holds for a call. ``values`` is asked for its validated arguments when a rule of the tool looks at
        them."""
        if not self._rules:
            return NO_OBJECTION
        found = self._about(tool)
        if not found:
            return NO_OBJECTION
        arguments = values() if any(one.conditions for one in found) else {}
        matching = [one.rule for one in found if _holds(one, arguments)]
        if not matching:
            return NO_OBJECTION
        rule = max(matching, key=lambda rule: _RANK[rule.action])
        return Ruling(rule.action, rule.reason or _said(rule))

    def _about(self, tool: str) -> tuple[_Compiled, ...]:
        found = self._of_tool.get(tool)
        if found is None:
            found = tuple(one for glob, one in self._rules if glob.fullmatch(tool))
            if len(self._of_tool) < _TOOLS_REMEMBERED:
                self._of_tool[tool] = found
        return found


def _compiled(rule: Rule) -> _Compiled:
    return _Compiled(rule, tuple((tuple(path.split(".")), _glob(glob)) for path, glob in rule.when.items()))


def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(glob))


def _holds(one: _Compiled, arguments: dict[str, Any]) -> bool:
    return all(
        any(glob.fullmatch(text) for value in _at(arguments, path) if (text := _text(value)) is not None)
        for path, glob in one.conditions
    )


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """Every value that stands at a path."""
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        items = value.values() if step == "*" else [value[step]] if step in value else []
    elif isinstance(value, list):
        items = value if step == "*" else _item(value, step)
    else:
        return
    for item in items:
        yield from _at(item, rest)


def _item(values: list[Any], step: str) -> list[Any]:
    return [values[int(step)]] if step.isascii() and step.isdigit() and int(step) < len(values) else []


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None if isinstance(value, (dict, list)) else msgspec.json.encode(value).decode()


def _said(rule: Rule) -> str:
    where = "".join(f", {path} = {glob}" for path, glob in rule.when.items())
    return f"a rule of the configuration says {rule.action} for {rule.tool}{where}"
