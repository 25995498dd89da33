"""``docs/states/turn.md`` is what ``supervisor/core/turn.py`` does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from supervisor.core import turn as machine
from supervisor.core import turn_words as words

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def make() -> ModuleType:
    path = REPOSITORY / "docs" / "states" / "make_turn.py"
    spec = importlib.util.spec_from_file_location("docs_states_make_turn", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_machine_says(make: ModuleType) -> None:
    assert make.PAGE.read_text(encoding="utf-8") == make.page(), "run: python docs/states/make_turn.py"


def test_a_changed_transition_changes_the_page(make: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make.page()
    monkeypatch.setitem(machine._TABLE, (machine.State.BACKOFF, words.Woken), machine.TurnMachine._stay)
    assert make.page() != before
