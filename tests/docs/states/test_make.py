"""``docs/states/call.md`` is what ``supervisor/core/call.py`` does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from supervisor.core import call as machine

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("docs_states_make", REPOSITORY / "docs" / "states" / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_machine_says(make):
    assert make.PAGE.read_text(encoding="utf-8") == make.page(), "run: python docs/states/make.py"


def test_every_state_and_every_input_has_its_place_on_the_page(make):
    header = next(line for line in make.page().splitlines() if line.startswith("| input |"))
    assert [cell.strip() for cell in header.strip("| ").split("|")[1:]] == [state.name for state in machine.State]
    assert {type(one()) for _, one in make.VARIANTS} == {kind for _, kind in machine._TABLE}


def test_a_changed_transition_changes_the_page(make, monkeypatch):
    before = make.page()
    monkeypatch.setitem(machine._TABLE, (machine.State.DYING, machine.EndAsked), machine.CallMachine._end)
    assert make.page() != before
