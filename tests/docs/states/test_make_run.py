"""``docs/states/run.md`` is what ``supervisor/core/run.py`` does."""

from __future__ import annotations

from types import ModuleType

import pytest

from supervisor.core import run as machine


def test_a_changed_transition_changes_the_page(make: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make.page()
    monkeypatch.setitem(machine._TABLE, (machine.State.CHECKING, machine.FinishAsked), machine.RunMachine._stay)
    assert make.page() != before
