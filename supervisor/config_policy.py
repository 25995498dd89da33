"""``[approval]`` and ``[[policy]]`` of the configuration: when a person is asked before a call, and what is refused.

Owns their names, ranges and defaults; what the rules mean is `core/policy`'s, what an approval is `core/approvals`'.
"""

from __future__ import annotations

import typing
from typing import Annotated, Any, Literal

import msgspec

from supervisor.config_tables import ConfigError, read_fields, shown
from supervisor.core.checkpoints import Undeclared
from supervisor.core.policy import Rule

_DAY_MS = 86_400_000
_RULES = 1_000
_KINDS = typing.get_type_hints(Rule)


class ApprovalSettings(msgspec.Struct, frozen=True):
    """``[approval]``. ``undeclared``: what holds for a tool that does not say. ``expires_ms``: how long a question
    stands, by the wall clock; no longer than the log is kept. ``clock``: whether a run's time goes on meanwhile."""

    undeclared: Undeclared = "on_write"
    expires_ms: Annotated[int, msgspec.Meta(ge=1, le=7 * _DAY_MS)] = _DAY_MS
    clock: Literal["pause", "run"] = "pause"


def read_approval(table: object) -> ApprovalSettings:
    """``[approval]``. Raises ConfigError."""
    kinds = typing.get_type_hints(ApprovalSettings, include_extras=True)
    return ApprovalSettings(**read_fields(table, kinds, "approval"))


def read_policy(tables: object) -> tuple[Rule, ...]:
    """The ``[[policy]]`` tables, in their order. Raises ConfigError."""
    if not isinstance(tables, list):
        raise ConfigError(f"policy = {shown(tables)} is not allowed; allowed: tables [[policy]]")
    if len(tables) > _RULES:
        raise ConfigError(f"policy has {len(tables)} rules; allowed: at most {_RULES}")
    return tuple(_rule(table, f"policy[{number}]") for number, table in enumerate(tables))


def _rule(table: object, place: str) -> Rule:
    fields: dict[str, Any] = read_fields(table, _KINDS, place)
    for name in ("tool", "action"):
        if name not in fields:
            raise ConfigError(f"{place}.{name} is missing; a rule has a tool (a glob) and an action")
    for path, glob in fields.get("when", {}).items():
        if not all(path.split(".")):
            raise ConfigError(f'{place}.when: {shown(path)} is no path; allowed: "argv.0", "path", "argv.*"')
        if not glob:
            raise ConfigError(f"{place}.when.{path} is empty; allowed: a glob")
    if not fields["tool"]:
        raise ConfigError(f"{place}.tool is empty; allowed: a glob")
    return Rule(**fields)
