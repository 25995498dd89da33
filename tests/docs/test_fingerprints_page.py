"""The page on fingerprints against the code: every pair that it shows, its words and its numbers."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from protocol import Contract, ToolDescription
from protocol._roles import Role
from protocol._scrub import ENTRIES, LENGTH
from supervisor.core.call_form import CallForm, Surroundings
from supervisor.core.command_words import LONGEST
from supervisor.core.scrubbing import _LONGEST_RUN, MOST_TEXT
from tests.docs.test_reference import table_after

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fingerprints.md").read_text(encoding="utf-8")
AROUND = Surroundings("/work", "/home/user", b"k" * 32)
TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"path": TEXT, "url": TEXT, "command": TEXT, "limit": {"default": 10}}}
ROLES: dict[str, Role] = {"path": "path", "url": "url", "command": "command"}
FORM = CallForm(ToolDescription("t", "", Contract(roles=ROLES, home="user"), SCHEMA))


def pairs(kind: str) -> list[Any]:
    rows = table_after(PAGE, f"<!-- pairs of {kind} -->")
    return [
        pytest.param(spelled(one), spelled(other), said == "same", id=f"{one} {other}") for one, other, said in rows
    ]


def spelled(cell: str) -> str:
    """What stands in a cell as code; a remark may follow it."""
    found = re.match(r"`(.+?)`(,|$)", cell)
    assert found, cell
    return found[1]


def fingerprint(**values: Any) -> str:
    return FORM.fingerprint(values, AROUND)


@pytest.mark.parametrize(("one", "other", "same"), pairs("values"))
def test_pairs_of_values_are_as_the_page_says(one: str, other: str, same: bool) -> None:
    assert (fingerprint(**json.loads(one)) == fingerprint(**json.loads(other))) is same


@pytest.mark.parametrize(("one", "other", "same"), pairs("paths"))
def test_pairs_of_paths_are_as_the_page_says(one: str, other: str, same: bool) -> None:
    assert (fingerprint(path=one) == fingerprint(path=other)) is same


@pytest.mark.parametrize(("one", "other", "same"), pairs("urls"))
def test_pairs_of_addresses_are_as_the_page_says(one: str, other: str, same: bool) -> None:
    assert (fingerprint(url=one) == fingerprint(url=other)) is same


@pytest.mark.parametrize(("one", "other", "same"), pairs("commands"))
def test_pairs_of_commands_are_as_the_page_says(one: str, other: str, same: bool) -> None:
    assert (fingerprint(command=one) == fingerprint(command=other)) is same


def test_every_role_is_on_the_page() -> None:
    assert [row[0].strip("`") for row in table_after(PAGE, "<!-- roles -->")] == list(typing.get_args(Role))


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"run of up to {_LONGEST_RUN} characters" in " ".join(PAGE.split())
    assert f"At most {ENTRIES} entries of at most {LENGTH} characters each. Of a result {MOST_TEXT} characters" in PAGE
    assert f"more than {LONGEST} characters" in PAGE
