"""Which zygotes a configuration needs, and what each is told at its start.

Flavours: ``bare`` serves the built-in tools and the configured commands; ``tools`` has the configured Python modules
imported before it forks, so that a call of theirs costs no import. A daemon without Python modules has no second one.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from supervisor.config import Config

BARE, PRELOADED = "bare", "tools"


def flavours_of(config: Config) -> dict[str, dict[str, Any]]:
    """Start options by flavour (see `toolworkers._zygote.Config` for the fields)."""
    flavours = {BARE: _options(commands=_commands(config))}
    modules = sorted({tool.module for tool in config.tool.values() if tool.module})
    if modules:
        paths = sorted({path for tool in config.tool.values() for path in tool.path})
        flavours[PRELOADED] = _options(modules=modules, path=paths, tools=_overrides(config))
    return flavours


def _options(**given: Any) -> dict[str, Any]:
    return {"outer_pidns": os.stat("/proc/self/ns/pid").st_ino, "user_env": dict(os.environ), **given}


def _commands(config: Config) -> dict[str, Any]:
    return {name: msgspec.to_builtins(tool) for name, tool in config.tool.items() if tool.kind == "command"}


def _overrides(config: Config) -> dict[str, Any]:
    return {name: msgspec.to_builtins(tool.contract_fields()) for name, tool in config.tool.items() if tool.module}
