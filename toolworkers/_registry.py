"""Which tools this process can run: the built-ins, users' modules, the configuration's command templates.

Also the one place that outsiders take the tool-writing names from. Owns the rule that a name means one tool; what a
tool is, is in `_tools`; what a template may say, in `_templates`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec

from protocol._contract_fields import declared_contract
from protocol._contracts import ToolDescription
from protocol._roles import refuse_unfit_roles
from toolworkers._after_kill import refuse_unusable
from toolworkers._content import to_content
from toolworkers._context import Context
from toolworkers._plans import CommandPlan
from toolworkers._templates import template_tool
from toolworkers._tools import MARK, Tool, ToolError, command, tool

__all__ = [
    "CommandPlan",
    "Context",
    "Registry",
    "RegistryError",
    "Tool",
    "ToolError",
    "builtin_registry",
    "command",
    "to_content",
    "tool",
]


class RegistryError(ValueError):
    """A tool cannot be registered: its name is taken, its module cannot be loaded, its template says something odd."""


class Registry:
    """Names → tools. A name means one tool; adding the same tool again is nothing, another under its name an error."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def add(self, added: Tool) -> None:
        """Register one tool. Raises RegistryError when its name means another one, or its contract means nothing."""
        _check_contract(added)
        there = self._tools.setdefault(added.name, added)
        if there is not added:
            raise RegistryError(
                f"tool {added.name!r} of {added.origin} is already registered by {there.origin};"
                " allowed: another name (name=…)"
            )

    def add_module(self, module: ModuleType) -> None:
        """Register every decorated function in a module's namespace, in the order in which they stand there."""
        found = [
            getattr(thing, MARK) for thing in vars(module).values() if isinstance(getattr(thing, MARK, None), Tool)
        ]
        if not found:
            raise RegistryError(
                f"module {module.__name__!r} declares no tool; allowed: functions under @tool or @command"
            )
        for one in found:
            self.add(one)

    def load_module(self, name: str) -> None:
        """Import a module and register its tools. Raises RegistryError, with the module's own exception as cause."""
        try:
            module = importlib.import_module(name)
        except Exception as error:  # a user's module may raise anything while it is imported
            raise RegistryError(f"module {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
        self.add_module(module)

    def add_command_template(self, name: str, table: Mapping[str, Any], search_path: str | None = None) -> None:
        """Register a ``[tool.NAME] kind = "command"`` table. ``search_path``: a PATH to pin the program on.

        Raises RegistryError that says what a template may be.
        """
        try:
            made = template_tool(name, table, search_path)
        except (TypeError, ValueError) as error:
            raise RegistryError(f"tool.{name}: {error}") from error
        self.add(made)

    def override(self, name: str, fields: Mapping[str, Any]) -> None:
        """Replace contract fields of a registered tool, as the configuration asks. Raises RegistryError."""
        known = self.get(name)
        if known is None:
            raise RegistryError(f"tool.{name}: no such tool; there are: {', '.join(self.names())}")
        try:
            contract = declared_contract(fields, known.contract)
        except (TypeError, ValueError) as error:
            raise RegistryError(f"tool.{name}: {error}") from error
        changed = msgspec.structs.replace(known, contract=contract)
        _check_contract(changed)
        self._tools[name] = changed

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or None."""
        return self._tools.get(name)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._tools)

    def describe(self) -> list[ToolDescription]:
        """What WorkerReady carries: every tool, by name."""
        return [self._tools[name].describe() for name in self.names()]

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)


def _check_contract(tool: Tool) -> None:
    """What of a contract only its tool can tell."""
    try:
        refuse_unusable(tool)
        refuse_unfit_roles(tool.contract.roles, tool.name, tool.schema)
    except ValueError as error:
        raise RegistryError(f"tool.{tool.name}: {error}") from error


def builtin_registry() -> Registry:
    """A registry of the built-in tools: every public module of ``toolworkers.builtin``, one tool each."""
    from toolworkers import builtin

    registry = Registry()
    for found in sorted(module.name for module in pkgutil.iter_modules(builtin.__path__)):
        if not found.startswith("_"):
            registry.load_module(f"{builtin.__name__}.{found}")
    return registry
