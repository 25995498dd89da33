"""docs/budgets.md against the code: dimensions, profiles, keys and defaults, codes."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from protocol._budgets import Dimension, code_of
from supervisor.config_budgets import _PRICE_KINDS, _PROFILE_KINDS, _TENANT_KINDS
from supervisor.core.budget import Level, Node, Refused, run_reason
from supervisor.core.prices import Price
from supervisor.core.profiles import BUILT_IN, Objection, Recipe, Tenant, effective, resolve
from tests.docs.test_reference import defaults_after, table_after

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "budgets.md").read_text(encoding="utf-8")


def test_every_dimension_is_described_in_its_order_with_the_reason_that_it_settles_with() -> None:
    rows = [[cell.strip("`") for cell in row] for row in table_after(PAGE, "<!-- table dimensions -->")]
    named = [row[0] for row in rows]
    assert [name for name in named if "[" not in name] == list(Dimension)
    assert [name for name in named if "[" in name] == ["tool_calls[NAME]"]
    for name, unit, charged, reason in rows:
        held = run_reason(Refused(Node(Level.RUN, "r"), name, 1, 1, 0, 1))
        expected = "time_budget" if name == Dimension.WALL_MS else held or "nothing: only that call is refused"
        assert reason == expected, name
        assert unit, name
        assert charged, name


def test_the_profiles_are_those_that_hold() -> None:
    said = {}
    for row in table_after(PAGE, "<!-- table profiles -->"):
        name, steps, time, tools, tokens, cost, detectors = (cell.strip("`") for cell in row)
        limits = {"steps": int(steps), "wall_ms": int(time.removesuffix(" min")) * 60_000}
        limits |= {} if tools == "–" else {"tool_calls": int(tools)}
        limits |= {} if tokens == "–" else {"tokens_total": int(tokens.replace(" ", ""))}
        limits |= {} if cost == "–" else {"cost_micros": round(float(cost) * 1_000_000)}
        said[name] = (limits, detectors)
    profiles = resolve({})
    assert list(said) == list(BUILT_IN)
    assert said == {name: (one.limits, one.detectors) for name, one in profiles.items()}


def defaults_of(marker: str) -> dict[str, Any]:
    """Key → default as TOML says it; None for one without."""
    said = defaults_after(PAGE, marker)
    return {key: None if value == "–" else tomllib.loads(f"x = {value}")["x"] for key, value in said.items()}


def test_every_key_of_a_profile_is_described_with_its_default() -> None:
    said = defaults_of("<!-- table profile -->")
    assert list(said) == list(_PROFILE_KINDS)
    default = msgspec.to_builtins(resolve({"mine": Recipe()})["mine"])
    held = {key: default[key] for key in said} | {"limits": {}, "base": "default"}
    assert json.loads(json.dumps(held)) == said


def test_every_key_of_a_tenant_is_described_with_its_default() -> None:
    said = defaults_of("<!-- table tenant -->")
    assert list(said) == list(_TENANT_KINDS)
    assert json.loads(msgspec.json.encode({key: getattr(Tenant(), key) for key in said})) == said


def test_every_key_of_a_price_is_described_with_its_default() -> None:
    said = {row[0].strip("`"): row[1] for row in table_after(PAGE, "<!-- table price -->")}
    assert list(said) == list(_PRICE_KINDS)
    required = {field.name for field in msgspec.structs.fields(Price) if field.required}
    assert {key for key, value in said.items() if value == "required"} == required


def test_every_older_code_is_said_with_its_reasons() -> None:
    for code, reasons in table_after(PAGE, "<!-- table codes -->"):
        assert {code_of(reason) for reason in re.findall(r"`(\w+)`", reasons)} == {code.strip("`")}


def test_the_objection_shown_is_the_one_that_is_said() -> None:
    objection = effective(resolve({})["edit"], Tenant(), {"steps": 50})
    assert isinstance(objection, Objection)
    assert f"`{objection.text.partition(';')[0]}`" in PAGE
