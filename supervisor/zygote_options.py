"""Which zygotes a configuration needs, and what each is told at its start.

Flavours: ``bare`` serves the built-in tools and the configured commands; ``tools`` has the configured Python modules
imported before it forks, so that a call of theirs costs no import. A daemon without Python modules has no second one.
"""

from __future__ import annotations

import os
from typing import Any

from supervisor.config import Config, ToolTable
from supervisor.environment import may_be_lent

BARE, PRELOADED = "bare", "tools"


def flavours_of(config: Config) -> dict[str, dict[str, Any]]:
    """Start options by flavour (see `toolworkers._zygote.Config` for the fields)."""
    tables = config.tool.items()
    commands = {name: table.command_table() for name, table in tables if table.kind == "command"}
    built_in = _overrides({name: table for name, table in tables if table.kind is None})
    flavours = {BARE: _options(commands=commands, tools=built_in)}
    python = {name: table for name, table in tables if table.module is not None}
    if python:
        flavours[PRELOADED] = _options(
            modules=sorted({table.module for table in python.values()}),
            path=list(dict.fromkeys(path for table in python.values() for path in table.path)),
            tools=_overrides(python),
        )
    return flavours


def _overrides(tables: dict[str, ToolTable]) -> dict[str, Any]:
    """Contract fields to change. A table that changes none need not bear a tool's name."""
    return {name: fields for name, table in tables.items() if (fields := table.contract_fields())}


def _options(**given: Any) -> dict[str, Any]:
    return {"outer_pidns": os.stat("/proc/self/ns/pid").st_ino, "user_env": _environment(), **given}


def _environment() -> dict[str, str]:
    """What JSON can say of ours: bytes that are no UTF-8 stand as half surrogate pairs (PEP 383) and are left out."""
    ours = os.environ.items()
    return {name: value for name, value in ours if is_text(name) and is_text(value) and may_be_lent(name)}


def is_text(words: str) -> bool:
    """Whether a name that came from the system can be written as UTF-8."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True
