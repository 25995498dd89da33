"""What is said of budgets: the dimensions and their names, a mapping of limits read strictly, a dimension as it stands.

A mapping of limits is flat and the same everywhere: on the wire, in the configuration, on the command line:
``{"steps": 25, "tool_calls[search]": 3, "wall_ms": 480000}``. None: without a limit; 0: none of it. What is charged and
when is the daemon's (``supervisor/core/budget.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from protocol._errors import QuantityError
from protocol._quantities import parse_duration_ms, parse_size_bytes

MOST = (1 << 63) - 1
WALL_CEILING_MS = 86_400_000
"""The longest that a run may take: a day. Longer ones are several runs of a session, or a unit typed by mistake."""
MOST_LIMITS = 256
NO_LIMIT = "none"
_PER_TOOL = re.compile(r"tool_calls\[([A-Za-z0-9_.-]{1,128})\]")
_SHOWN = 60


class Dimension(StrEnum):
    """What a budget is of. Beside these there is ``tool_calls[NAME]``: calls of one tool."""

    STEPS = "steps"
    MODEL_CALLS = "model_calls"
    TOOL_CALLS = "tool_calls"
    TOKENS_IN = "tokens_in"
    TOKENS_OUT = "tokens_out"
    TOKENS_TOTAL = "tokens_total"
    COST_MICROS = "cost_micros"
    OUTPUT_BYTES = "output_bytes"
    RETRIES = "retries"
    BRANCHES = "branches"
    WALL_MS = "wall_ms"


_WORDS = frozenset(Dimension)
ALLOWED = ", ".join([*Dimension, "tool_calls[NAME]"])


class LimitError(ValueError):
    """A limit cannot be accepted; the text names it and says what is allowed."""


class DimensionView(msgspec.Struct):
    """One dimension of a budget as it stands. ``limit`` and ``left`` None: without a limit.

    ``limit``, ``used`` and ``reserved`` are this budget's own. ``left`` is what may still be asked for: of this budget
    and of those above it, without what is reserved and what is held back for a wrap-up; never below 0.
    """

    limit: int | None
    used: int
    reserved: int
    left: int | None

    @property
    def percent(self) -> int | None:
        """How much of the limit is used, rounded down, over 100 after an overshoot; None without a limit or with 0."""
        return self.used * 100 // self.limit if self.limit else None


class BudgetRecord(msgspec.Struct):
    """The short form of what a run has left. ``deadline_ns``: its one absolute deadline, on CLOCK_MONOTONIC of the host
    that it shares with the daemon. None: without a limit."""

    deadline_ns: int
    remaining_ms: int
    model_calls_left: int | None
    tool_calls_left: int | None
    output_bytes_left: int | None


ALIASES = {
    "DEADLINE_EXCEEDED": "time_budget",
    "MODEL_BUDGET_EXHAUSTED": "model_call_budget",
    "TOOL_BUDGET_EXHAUSTED": "tool_call_budget",
}
"""Older names of reasons, which `RunReason` understands too."""
_CODES = {**{reason: code for code, reason in ALIASES.items()}, "per_tool_budget": "TOOL_BUDGET_EXHAUSTED"}


def code_of(reason: str) -> str | None:
    """The older name of a reason; None where it has none."""
    return _CODES.get(reason)


def tool_calls_of(tool: str) -> str:
    """The dimension that counts calls of one tool."""
    return f"tool_calls[{tool}]"


def tools_named(limits: Mapping[str, object]) -> list[str]:
    """The tools that have a limit of their own."""
    return [found[1] for name in limits if (found := _PER_TOOL.fullmatch(name))]


def read_limits(limits: Mapping[str, object]) -> dict[str, int | None]:
    """The limits of a mapping that somebody wrote, in its order. Raises LimitError for the first that cannot be."""
    if len(limits) > MOST_LIMITS:
        raise LimitError(f"{len(limits)} limits; allowed: at most {MOST_LIMITS}")
    return {name: _limit(name, value) for name, value in limits.items()}


def read_limit(text: str) -> tuple[str, int | None]:
    """One limit as typed: ``steps=25``, ``tool_calls[search]=3``, ``wall_ms=8m``, ``output_bytes=64MiB``,
    ``cost_micros=none``. Raises LimitError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise LimitError(f"{_shown(text)} is no limit; allowed: NAME=NUMBER, NAME one of {ALLOWED}")
    return name, _limit(name, limit_value(name, value))


def limit_value(name: str, text: str) -> object:
    """What a text stands for as a limit: a number, a duration (``wall_ms``), a size (``output_bytes``), None for
    ``none``; else the text itself, which no limit is. Raises LimitError."""
    if text == NO_LIMIT:
        return None
    if text.isascii() and text.isdigit():
        return int(text) if len(text) <= len(str(MOST)) else MOST + 1
    try:
        if name == Dimension.WALL_MS:
            return parse_duration_ms(text)
        return parse_size_bytes(text) if name == Dimension.OUTPUT_BYTES else text
    except QuantityError as error:
        raise LimitError(f"{name}: {error}, or a whole number") from error


def _limit(name: str, value: object) -> int | None:
    if name not in _WORDS and not _PER_TOOL.fullmatch(name):
        raise LimitError(f"{_shown(name)} is no limit; allowed: {ALLOWED}")
    if name == Dimension.WALL_MS:
        return _whole(name, value, 1, WALL_CEILING_MS)
    return None if value is None else _whole(name, value, 0, MOST, ", or none (in JSON null) for no limit")


def _whole(name: str, value: object, least: int, most: int, else_allowed: str = "") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        said = f"{name} = {_shown(value)} is not allowed; allowed: a whole number from {least} to {most}"
        raise LimitError(said + else_allowed)
    return value


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
