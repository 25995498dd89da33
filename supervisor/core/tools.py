"""The tools this daemon serves: contract, schema and flavour of worker by name. The workers' Hello is where they come
from; what a configuration says of one has been applied there."""

from __future__ import annotations

import msgspec

from protocol._contracts import Contract, IsolationLevel, Limits, ToolDescription
from supervisor.core.call_form import CallForm
from supervisor.core.levels import isolation_wanted
from supervisor.core.schemas import ArgumentSchema


class ServedTool(msgspec.Struct, frozen=True):
    """One tool, ready to judge calls of it."""

    description: ToolDescription
    schema: ArgumentSchema
    flavour: str
    form: CallForm

    @property
    def contract(self) -> Contract:
        """What the tool promises and demands."""
        return self.description.contract


class Place(msgspec.Struct, frozen=True):
    """Where a tool belongs whose workers are not as all others: the zygote that knows it, its limits, its isolation."""

    zygote: str
    limits: Limits
    isolation: IsolationLevel


class Tools:
    """Lookup by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, ServedTool] = {}

    def serve(self, descriptions: list[ToolDescription], flavour: str) -> None:
        """Add what workers of one flavour serve. Every flavour has the built-in tools; the first one keeps them (a
        registry refuses a second tool of one name itself)."""
        for description in descriptions:
            if description.name not in self._by_name:
                form = CallForm(description)
                self._by_name[description.name] = ServedTool(description, ArgumentSchema(description), flavour, form)

    def set_apart(self, limits: Limits, isolation: IsolationLevel) -> dict[str, Place]:
        """Tools whose own limits or isolation differ from these get workers of their own: a worker's are set when it is
        made. Returns where they belong by new flavour; tools that belong to one place share one."""
        apart: dict[str, Place] = {}
        for name, tool in self._by_name.items():
            contract = tool.contract
            own = limits if contract.limits is None else contract.limits
            wanted = isolation_wanted(contract.isolation, contract.min_isolation, isolation)
            if wanted != isolation or _of_a_worker(own) != _of_a_worker(limits):
                place = Place(tool.flavour, _of_a_worker(own), wanted)
                flavour = next((known for known, found in apart.items() if found == place), f"{tool.flavour}+{name}")
                apart[flavour] = place
                self._by_name[name] = msgspec.structs.replace(tool, flavour=flavour)
        return apart

    def who_cannot_be_asked(self) -> list[str]:
        """What is wrong with the tools that contracts name in ``reconcile``, for people."""
        return [
            f"tool.{name}.reconcile: {tool.contract.reconcile.tool!r} {why}"
            for name, tool in sorted(self._by_name.items())
            if tool.contract.reconcile is not None
            and (why := self._why_not(self._by_name.get(tool.contract.reconcile.tool)))
        ]

    def _why_not(self, asked: ServedTool | None) -> str:
        if asked is None:
            return f"is no tool; there are: {', '.join(self.names())}"
        if not asked.contract.read_only:
            return "is not read_only; allowed: a tool that only looks, because it is asked at any time"
        if "idempotency_key" not in asked.description.schema.get("properties", {}):
            return "takes no argument idempotency_key; allowed: a tool that does (and arguments, if it wants them)"
        return ""

    def get(self, name: str) -> ServedTool | None:
        """The tool of that name."""
        return self._by_name.get(name)

    def is_served(self, name: str) -> bool:
        """Whether there is a tool of that name."""
        return name in self._by_name

    def descriptions(self, name: str | None = None) -> list[ToolDescription]:
        """All tools by name, or the one asked for (an empty list when there is none)."""
        return [tool.description for key, tool in sorted(self._by_name.items()) if name in (None, key)]

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._by_name)


def _of_a_worker(limits: Limits) -> Limits:
    """Limits without the one that is kept per call."""
    return msgspec.structs.replace(limits, output_bytes=0)
