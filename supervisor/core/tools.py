"""The tools this daemon serves: contract, schema and flavour of worker by name. The workers' Hello is where they come
from; what a configuration says of one has been applied there."""

from __future__ import annotations

import msgspec

from protocol._contracts import Contract, ToolDescription
from supervisor.core.schemas import ArgumentSchema


class ServedTool(msgspec.Struct, frozen=True):
    """One tool, ready to judge calls of it."""

    description: ToolDescription
    schema: ArgumentSchema
    flavour: str

    @property
    def contract(self) -> Contract:
        """What the tool promises and demands."""
        return self.description.contract


class Tools:
    """Lookup by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, ServedTool] = {}

    def serve(self, descriptions: list[ToolDescription], flavour: str) -> None:
        """Add what workers of one flavour serve. Every flavour has the built-in tools; the first one keeps them (a
        registry refuses a second tool of one name itself)."""
        for description in descriptions:
            if description.name not in self._by_name:
                self._by_name[description.name] = ServedTool(description, ArgumentSchema(description), flavour)

    def get(self, name: str) -> ServedTool | None:
        """The tool of that name."""
        return self._by_name.get(name)

    def descriptions(self, name: str | None = None) -> list[ToolDescription]:
        """All tools by name, or the one asked for (an empty list when there is none)."""
        return [tool.description for key, tool in sorted(self._by_name.items()) if name in (None, key)]

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._by_name)
