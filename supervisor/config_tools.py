"""The ``[tool.NAME]`` tables of the configuration. Owns what such a table may hold and in which form a zygote gets it.

Three forms: ``kind = "command"`` with an ``argv`` template is a new tool; ``kind = "python"`` with a ``module`` adds
the module's tools; a table without ``kind`` changes contract fields of a tool that exists (a built-in). What a template
may say is judged where it is filled in, by the worker side, when the daemon starts.
"""

from __future__ import annotations

import os
import re
import typing
from typing import Any, Literal

import msgspec

from protocol import Contract, Limits
from protocol._contract_fields import declared_contract
from protocol._contracts import AfterKill, Reconcile, Refresh, Retry
from protocol._deadlines import CEILING_MS
from supervisor.config_tables import ConfigError, read_fields, shown

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_NOT_SERVED = ("roots",)
LIMIT_KINDS = typing.get_type_hints(Limits)
_TABLES = {
    **dict.fromkeys(("limits", "after_kill", "retry", "refresh"), dict[str, Any]),
    "reconcile": str | dict[str, Any],
}
_CONTRACT_KINDS = {**typing.get_type_hints(Contract), **_TABLES}
_CONTRACT_KINDS.pop("kind")
_COMMAND_KINDS = {"argv": list[str], "arguments": dict[str, Any], "description": str}
_PYTHON_KINDS = {"module": str, "path": str | list[str]}
_AFTER_KILL_KINDS = typing.get_type_hints(AfterKill)
_RECONCILE_KINDS = typing.get_type_hints(Reconcile)
_RETRY_KINDS = typing.get_type_hints(Retry)
_REFRESH_KINDS = typing.get_type_hints(Refresh)
_LEAST = {"core_bytes": 0, "open_files": 16}


class ToolTable(msgspec.Struct, frozen=True):
    """One ``[tool.NAME]``. ``contract``: its contract fields, plain values; ``template``: what only a command has."""

    kind: Literal["command", "python"] | None = None
    contract: dict[str, Any] = {}
    template: dict[str, Any] = {}
    module: str | None = None
    path: tuple[str, ...] = ()

    def contract_fields(self) -> dict[str, Any]:
        """The contract fields in which this tool differs from what its code declares."""
        return self.contract

    def command_table(self) -> dict[str, Any]:
        """The whole table of a command, as the worker side reads it."""
        return {"kind": "command", **self.template, **self.contract}

    def values(self) -> dict[str, Any]:
        """Everything the table holds, for people."""
        own = {"kind": self.kind, "module": self.module, "path": list(self.path)}
        return {**{key: value for key, value in own.items() if value}, **self.template, **self.contract}


def read_tool(name: str, table: object, limits: Limits, directory: str) -> ToolTable:
    """One table. ``limits``: those in force, which the tool's own go over; ``directory``: where relative paths start.

    Raises ConfigError.
    """
    place = f"tool.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{place}: {shown(name)} is no name for a tool; allowed: 1 to 64 letters, digits, '_' or '-'")
    if not isinstance(table, dict):
        raise ConfigError(f"{place} = {shown(table)} is not allowed; allowed: a table")
    _refuse_not_served(table, place)
    kind = table.get("kind")
    given = {key: value for key, value in table.items() if key != "kind"}
    if kind == "command":
        return _command(given, place, limits)
    if kind == "python":
        return _python(given, place, limits, directory)
    if kind is not None:
        raise ConfigError(f'{place}.kind = {shown(kind)} is not allowed; allowed: "command", "python", "mcp"')
    return ToolTable(None, _contract(given, place, limits))


def read_limits(table: object, place: str, base: Limits) -> Limits:
    """``base`` with the fields of a table of limits in place of its own. Raises ConfigError."""
    fields = read_fields(table, LIMIT_KINDS, place)
    if fields.get("cpu_ms") is not None:  # a limit that is accepted and not kept would be a lie
        raise ConfigError(f"{place}.cpu_ms is not served yet; take it out")
    for name, value in fields.items():
        if value is not None and value < _LEAST.get(name, 1):
            raise ConfigError(f"{place}.{name} = {value} is not allowed; allowed: at least {_LEAST.get(name, 1)}")
    try:
        return msgspec.structs.replace(base, **fields)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error


def _command(given: dict[str, Any], place: str, limits: Limits) -> ToolTable:
    template = read_fields(_only(given, _COMMAND_KINDS), _COMMAND_KINDS, place)
    if not template.get("argv"):
        raise ConfigError(f"{place}.argv is missing; a command needs a list of texts, the program first")
    others = {key: value for key, value in given.items() if key not in template}
    return ToolTable("command", _contract(others, place, limits, Contract(kind="command")), template)


def _python(given: dict[str, Any], place: str, limits: Limits, directory: str) -> ToolTable:
    own = read_fields(_only(given, _PYTHON_KINDS), _PYTHON_KINDS, place)
    module, path = own.get("module"), own.get("path", [])
    if module is None or not _MODULE.fullmatch(module):
        raise ConfigError(f'{place}.module = {shown(module)} is not allowed; allowed: a module\'s name ("my_tools")')
    others = {key: value for key, value in given.items() if key not in own}
    paths = [path] if isinstance(path, str) else path
    absolute = tuple(os.path.join(directory, os.path.expanduser(one)) for one in paths)
    return ToolTable("python", _contract(others, place, limits), {}, module, absolute)


def _contract(given: dict[str, Any], place: str, limits: Limits, base: Contract | None = None) -> dict[str, Any]:
    fields = read_fields(given, _CONTRACT_KINDS, place)
    if "after_kill" in fields:
        fields["after_kill"] = _after_kill(fields["after_kill"], f"{place}.after_kill")
    if "reconcile" in fields:
        fields["reconcile"] = _reconcile(fields["reconcile"], f"{place}.reconcile")
    if "retry" in fields:
        fields["retry"] = _retry(fields["retry"], f"{place}.retry")
    if "refresh" in fields:
        fields["refresh"] = read_fields(fields["refresh"], _REFRESH_KINDS, f"{place}.refresh")
    if "limits" in fields:
        fields["limits"] = read_limits(fields["limits"], f"{place}.limits", limits)
    try:
        declared_contract(fields, base or _widest(fields))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}: {error}") from error
    plain: dict[str, Any] = msgspec.to_builtins(fields)
    return plain


def _after_kill(table: object, place: str) -> AfterKill:
    fields = read_fields(table, _AFTER_KILL_KINDS, place)
    if "argv" not in fields:
        raise ConfigError(f"{place}.argv is missing; a list of texts, the program first")
    try:
        return AfterKill(**fields)
    except ValueError as error:
        raise ConfigError(f"{place.removesuffix('.after_kill')}: {error}") from error


def _reconcile(table: object, place: str) -> Reconcile:
    fields = {"tool": table} if isinstance(table, str) else read_fields(table, _RECONCILE_KINDS, place)
    if "tool" not in fields:
        raise ConfigError(f"{place}.tool is missing; the read-only tool that knows what became of a call")
    try:
        return Reconcile(**fields)
    except ValueError as error:
        raise ConfigError(f"{place.removesuffix('.reconcile')}: {error}") from error


def _retry(table: object, place: str) -> Retry:
    fields = read_fields(table, _RETRY_KINDS, place)
    try:
        return Retry(**fields)
    except ValueError as error:
        raise ConfigError(f"{place.removesuffix('.retry')}: {error}") from error


def _widest(fields: dict[str, Any]) -> Contract:
    """A base that no single field contradicts: only the worker side knows what the tool declares, and judges again."""
    most = fields.get("max_timeout_ms", CEILING_MS)
    return Contract(timeout_ms=min(max(1, most), CEILING_MS))


def _only(given: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key in kinds}


def _refuse_not_served(table: dict[str, Any], place: str) -> None:
    if table.get("kind") == "mcp":
        raise ConfigError(f'{place}.kind = "mcp" is not served yet; take the table out')
    for name in _NOT_SERVED:
        if name in table:
            raise ConfigError(f"{place}.{name} is not served yet; take it out")
