"""The ``[profile.NAME]``, ``[tenant.NAME]`` and ``[price."MODEL"]`` tables of the configuration. Owns what they may
hold and what contradicts itself in them; what they come to for a run is `supervisor.core.profiles`'.

A limit is a whole number, ``"none"``, or a duration (``wall_ms``) or a size (``output_bytes``) as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from protocol._budgets import MOST, WALL_CEILING_MS, Dimension, LimitError, limit_value, read_limits
from protocol._checks import Check
from protocol._contracts import Approval
from supervisor.config_tables import ConfigError, read_fields, shown
from supervisor.core.periods import Period
from supervisor.core.prices import Price
from supervisor.core.profiles import BUILT_IN_SETS, DEFAULT, Budgets, Limits, Profile, Recipe, Tenant, WrapUp, resolve
from supervisor.core.run_wishes import refuse_check

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
Micros = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_Uid = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 2)]
_WRAPUP_KINDS = {
    "model_calls": Annotated[int, msgspec.Meta(ge=0, le=MOST)],
    "ms": Annotated[int, msgspec.Meta(ge=0, le=WALL_CEILING_MS)],
}
_PROFILE_KINDS = {
    "base": str,
    "limits": dict[str, Any],
    "wrapup": dict[str, Any],
    "detectors": str,
    "max_refusals": Annotated[int, msgspec.Meta(ge=0, le=1_000)],
    "checks": tuple[Check, ...],
    "approval": Approval,
}
_SHARED_LIMITS = ("limits", "user_limits", "session_limits")
_TENANT_KINDS = {
    "uids": tuple[_Uid, ...],
    "period": Period,
    **dict.fromkeys((*_SHARED_LIMITS, "run_limits"), dict[str, Any]),
    "profiles": tuple[str, ...],
}
_PRICE_KINDS = dict.fromkeys(Price.__struct_fields__, Micros)


def read_budgets(document: Mapping[str, Any], sets: Iterable[str] = BUILT_IN_SETS) -> Budgets:
    """All that a configuration says of budgets. ``sets``: the names of the sets of detectors. Raises ConfigError."""
    profiles = _profiles(document, sets)
    tenants = {name: _tenant(name, table, profiles) for name, table in _named(document, "tenant").items()}
    _refuse_shared_uids(tenants)
    prices = {model: _price(f"price.{model}", table) for model, table in _tables(document, "price").items()}
    return Budgets(profiles, {DEFAULT: Tenant(), **tenants}, prices)


def _profiles(document: Mapping[str, Any], sets: Iterable[str]) -> dict[str, Profile]:
    said = {name: _recipe(f"profile.{name}", table) for name, table in _named(document, "profile").items()}
    try:
        return resolve(said, sets)
    except ValueError as error:
        raise ConfigError(f"profile.{error}") from error


def _recipe(place: str, table: object) -> Recipe:
    fields = read_fields(table, _PROFILE_KINDS, place)
    if "limits" in fields:
        fields["limits"] = _limits(fields["limits"], f"{place}.limits")
    if "wrapup" in fields:
        fields["wrapup"] = WrapUp(**read_fields(fields["wrapup"], _WRAPUP_KINDS, f"{place}.wrapup"))
    if (fault := next(filter(None, map(refuse_check, fields.get("checks", ()))), None)) is not None:
        raise ConfigError(f"{place}.checks: {fault}")
    return Recipe(**fields)


def _tenant(name: str, table: object, profiles: Mapping[str, Profile]) -> Tenant:
    place = f"tenant.{name}"
    fields = read_fields(table, _TENANT_KINDS, place)
    for key in fields.keys() & {*_SHARED_LIMITS, "run_limits"}:
        fields[key] = _limits(fields[key], f"{place}.{key}")
        if key in _SHARED_LIMITS and Dimension.WALL_MS in fields[key]:
            raise ConfigError(f"{place}.{key}.wall_ms: only a run has a time; allowed: {place}.run_limits.wall_ms")
    for profile in fields.get("profiles", ()):
        if profile not in profiles:
            raise ConfigError(
                f"{place}.profiles: there is no profile {shown(profile)}; allowed: {', '.join(sorted(profiles))}"
            )
    return Tenant(name, **fields)


def _refuse_shared_uids(tenants: Mapping[str, Tenant]) -> None:
    owner: dict[int, str] = {}
    for name, tenant in tenants.items():
        for uid in tenant.uids:
            if owner.setdefault(uid, name) != name:
                raise ConfigError(
                    f"tenant.{name}.uids: {uid} is one of tenant.{owner[uid]}; allowed: one tenant for each"
                )


def _price(place: str, table: object) -> Price:
    fields = read_fields(table, _PRICE_KINDS, place)
    for name in ("input_micros", "output_micros"):
        if name not in fields:
            raise ConfigError(f"{place}.{name} is missing; a price has both, in millionths for a million tokens")
    return Price(**fields)


def _limits(table: Mapping[str, Any], place: str) -> Limits:
    try:
        return read_limits({name: limit_value(name, n) if isinstance(n, str) else n for name, n in table.items()})
    except LimitError as error:
        raise ConfigError(f"{place}: {error}") from error


def _named(document: Mapping[str, Any], kind: str) -> dict[str, Any]:
    tables = _tables(document, kind)
    for name in tables:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{kind}.{name}: {shown(name)} is no name; allowed: 1 to 64 letters, digits, '_' or '-'")
    return tables


def _tables(document: Mapping[str, Any], kind: str) -> dict[str, Any]:
    tables = document.get(kind, {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{kind} = {shown(tables)} is not allowed; allowed: tables [{kind}.NAME]")
    return tables
