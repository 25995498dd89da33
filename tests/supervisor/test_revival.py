"""What a new life says of a journal that somebody else, or a disk, has changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.journal.store import Store, StoreError
from supervisor.revival import revive
from tests.supervisor.journal.conftest import tampered
from tests.supervisor.journal.test_recovery import settled

RUN = (
    """INSERT INTO runs (id, uid, state, spec, snapshot, opened_ms) VALUES ('r_1', 7, 'open', zeroblob(30), '{}', 1)"""
)


@pytest.mark.case("B094")
@pytest.mark.parametrize("change", ["UPDATE calls SET files = zeroblob(30)", RUN], ids=["a result", "a run"])
def test_a_row_that_nobody_wrote_is_said_and_is_no_fault_of_the_daemons(tmp_path: Path, change: str) -> None:
    path = str(tmp_path / "journal.db")
    state: Any = SimpleNamespace(journal=path, outputs=str(tmp_path))
    store = Store(path)
    store.open()
    store.commit(settled("c_1"))
    store.close()
    assert [call.id for call in revive(state, 60_000).recovered.kept] == ["c_1"]
    tampered(path, change)
    with pytest.raises(StoreError, match=f"the journal {path} is damaged"):
        revive(state, 60_000)
