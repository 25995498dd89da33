"""``docs/states/turn.md`` is what ``supervisor/core/turn.py`` does."""

from __future__ import annotations

from types import ModuleType

import pytest

from supervisor.core import turn as machine
from supervisor.core import turn_words as words


def test_a_changed_transition_changes_the_page(make: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make.page()
    monkeypatch.setitem(machine._TABLE, (machine.State.BACKOFF, words.Woken), machine.TurnMachine._stay)
    assert make.page() != before
