"""``[agent]``: how the daemon steers runs itself, where nothing else is said."""

from __future__ import annotations

import typing
from typing import Annotated, Any

import msgspec

from supervisor.config_tables import read_fields


class AgentSettings(msgspec.Struct, frozen=True):
    """``model``: as in ``--model``; None: what LLM_MODEL names. ``max_out``: tokens of a turn. ``last``: messages that
    a model is shown. ``system``: said to it behind the host's own words."""

    model: str | None = None
    max_out: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4_096
    last: Annotated[int, msgspec.Meta(ge=4, le=1_000)] = 20
    system: Annotated[str, msgspec.Meta(max_length=16_000)] = ""


_KINDS = typing.get_type_hints(AgentSettings, include_extras=True)


def read_agent(table: object) -> AgentSettings:
    """The table. Raises ConfigError."""
    fields: dict[str, Any] = read_fields(table, _KINDS, "agent")
    return AgentSettings(**fields)
