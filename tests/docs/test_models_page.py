"""The page about models against the code: keys of scripts, checks, names, variables, and the scripts that there are."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.provider_failures import FailureKind
from supervisor.models import checking, choosing, http, scripted, server_sent
from supervisor.models.scripted import Script, ScriptedCall, Tokens, Turn
from tests.docs.test_reference import REPOSITORY, defaults_after, table_after

PAGE = (REPOSITORY / "docs" / "models.md").read_text(encoding="utf-8")
SCRIPTS = sorted((REPOSITORY / "examples" / "scripts").glob("*.toml"))


@pytest.mark.parametrize(("table", "kind"), [("script", Script), ("turn", Turn)])
def test_every_key_of_a_script_is_documented_with_its_default(table, kind):
    documented = defaults_after(PAGE, f"<!-- table {table} -->")
    assert documented == {field.encode_name: said_of(field.default) for field in msgspec.structs.fields(kind)}


def said_of(default: Any) -> str:
    if default is msgspec.NODEFAULT:
        return "required"
    return "none" if default is None else json.dumps(default)


def test_the_keys_inside_of_a_turn_are_named():
    rows = {row[0]: row[2] for row in table_after(PAGE, "<!-- table turn -->")}
    for key, kind in (("`calls`", ScriptedCall), ("`tokens`", Tokens)):
        assert all(f"`{field.encode_name}`" in rows[key] for field in msgspec.structs.fields(kind))
    assert set(re.findall(r"`(\w+)`", rows["`fail`"])) == set(FailureKind) - {"http_status"}


def test_the_size_of_a_script_is_that_of_the_code():
    assert f"a regular file of at most {scripted.MOST_BYTES >> 20} MiB" in PAGE


def test_the_script_shown_plays():
    (shown,) = re.findall(r"^```\n(seed.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(msgspec.convert(tomllib.loads(shown), Script).turns) == 4


def test_every_check_is_documented_in_its_order():
    assert [row[0].strip("`") for row in table_after(PAGE, "Each check is bounded")] == list(checking.NAMES)


def test_every_name_and_variable_is_documented():
    assert [row[0].strip("`") for row in table_after(PAGE, "## Naming one")] == [
        *choosing.FORMS.split(", ")[1:],
        choosing.FORMS.split(", ")[0],
    ]
    variables = {row[0].strip("`") for row in table_after(PAGE, "need an extra")}
    assert variables == {choosing.MODEL_VARIABLE, choosing.BASE_VARIABLE, choosing.MODEL_KEY, choosing.SILENCE_VARIABLE}


def test_the_bounds_of_an_answer_are_documented():
    assert f"(within {http._CONNECT_S} s)" in PAGE
    assert (
        f"larger than {http.MOST_ANSWER_BYTES >> 20} MiB (an event of it: {server_sent.MOST_BYTES >> 20} MiB)" in PAGE
    )


def test_every_script_is_listed():
    listed = [name for row in table_after(PAGE, "In [`examples/scripts`]") for name in re.findall(r"`(\w+)`", row[1])]
    assert sorted(listed) == [path.stem for path in SCRIPTS]


@pytest.mark.parametrize("path", [REPOSITORY / "examples" / "silent.toml", *SCRIPTS], ids=lambda path: path.stem)
def test_every_script_plays_and_says_what_it_is(path: Path):
    assert Script.load(str(path)).turns
    assert path.read_text(encoding="utf-8").startswith("# ")
