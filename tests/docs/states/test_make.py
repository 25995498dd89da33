"""``docs/states/call.md`` is what ``supervisor/core/call.py`` does."""

from __future__ import annotations

from types import ModuleType

import pytest

from supervisor.core import call as machine


def test_every_state_and_every_input_has_its_place_on_the_page(make: ModuleType) -> None:
    header = next(line for line in make.page().splitlines() if line.startswith("| input |"))
    assert [cell.strip() for cell in header.strip("| ").split("|")[1:]] == [state.name for state in machine.State]
    assert {type(one()) for _, one in make.VARIANTS} == {kind for _, kind in machine._TABLE}


def test_a_changed_transition_changes_the_page(make: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make.page()
    monkeypatch.setitem(machine._TABLE, (machine.State.DYING, machine.EndAsked), machine.CallMachine._end)
    assert make.page() != before
