"""The ``[detectors.NAME]`` tables of the configuration. Owns how a set of detectors is written in a file; the numbers,
the sets that are built in, and which numbers cannot hold belong to `core.detector_sets`.

A table changes a set that is built in (the one of its name, else ``base``, else ``default``) where it says something.
"""

from __future__ import annotations

import re
import typing
from typing import Any, Literal

import msgspec

from supervisor.config_tables import ConfigError, read_fields, shown
from supervisor.core.detector_sets import ALIASES, SERVED, SETS, Settings, refuse_contradictions

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHERS = ("window", "block_settles", "observe")
_PLAIN_KINDS = {name: kind for name, kind in typing.get_type_hints(Settings).items() if name in _OTHERS}
_KINDS = {"base": str, **_PLAIN_KINDS, **dict.fromkeys(SERVED, dict[str, Any])}


def own_names(tables: object) -> Any:
    """The tables as written, each detector by the one name that it has here. Raises ConfigError for one under two."""
    if not isinstance(tables, dict):
        raise ConfigError(f"detectors = {shown(tables)} is not allowed; allowed: tables [detectors.NAME]")
    return {name: _own_names(name, table) if isinstance(table, dict) else table for name, table in tables.items()}


def read_detectors(tables: dict[str, Any]) -> dict[str, Settings]:
    """Every set by name: those built in, and over them those of the file (by `own_names`). Raises ConfigError."""
    return SETS | {name: _read_set(name, table) for name, table in tables.items()}


def detector_values(settings: Settings) -> dict[str, Any]:
    """A set in the form in which a file gives it, every value of it."""
    values: dict[str, Any] = {key: getattr(settings, key) for key in _OTHERS}
    for name, levels in SERVED.items():
        values[name] = {level: getattr(getattr(settings, name), level) for level in levels}
    values["no_progress"]["action"] = settings.no_progress_action
    return values


def _own_names(name: str, table: dict[str, Any]) -> dict[str, Any]:
    for alias, detector in ALIASES.items():
        if alias in table and detector in table:
            place = f"detectors.{name}"
            raise ConfigError(f"{place}.{alias} is {place}.{detector} by another name; allowed: one of them")
    return {ALIASES.get(key, key): value for key, value in table.items()}


def _read_set(name: str, table: object) -> Settings:
    place = f"detectors.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{place}: {shown(name)} is no name for a set; allowed: 1 to 64 letters, digits, '_' or '-'")
    fields = read_fields(table, _KINDS, place)
    base = _base(fields.pop("base", name if name in SETS else "default"), place)
    changes = {key: value for key, value in fields.items() if key in _PLAIN_KINDS}
    for detector in (key for key in fields if key in SERVED):
        changes |= _read_levels(detector, fields[detector], base, f"{place}.{detector}")
    settings = msgspec.structs.replace(base, **changes)
    try:
        refuse_contradictions(settings)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
    return settings


def _base(name: str, place: str) -> Settings:
    if name not in SETS:
        raise ConfigError(f"{place}.base = {shown(name)} is not allowed; allowed: {', '.join(SETS)}")
    return SETS[name]


def _read_levels(detector: str, table: object, base: Settings, place: str) -> dict[str, Any]:
    """The changes that one detector's table means."""
    kinds: dict[str, Any] = dict.fromkeys(SERVED[detector], int | None)
    if detector == "no_progress":
        kinds["action"] = Literal["stop", "ask"]
    fields = read_fields(table, kinds, place)
    changes = {"no_progress_action": fields.pop("action")} if "action" in fields else {}
    return changes | {detector: msgspec.structs.replace(getattr(base, detector), **fields)}
