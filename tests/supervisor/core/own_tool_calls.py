"""Calls of the tools that are a loop's own, as a model makes them, and what the model was told that they take."""

from __future__ import annotations

import json
from typing import Any

from protocol import Contract, ToolDescription
from supervisor.core.model_events import ToolCall, ToolSpec
from supervisor.core.schemas import ArgumentSchema


def called(tool: ToolSpec, arguments: Any) -> ToolCall:
    """``arguments``: a value, or text as it came."""
    return ToolCall("1", tool.name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def described(tool: ToolSpec) -> ArgumentSchema:
    """What its description takes, by the rule for tools of the daemon."""
    return ArgumentSchema(ToolDescription(tool.name, tool.description, Contract(), tool.schema))
