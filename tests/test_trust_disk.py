"""The trust suites of the journal's file see a journal that does not keep its word."""

from __future__ import annotations

import apsw
import pytest

from supervisor.journal import store
from tests.trust import journal_power_cuts as power
from tests.trust.memory_disk import Disk, Op, mounted

CHUNK = (3, 0, 60)


def test_a_sound_journal_comes_through_every_cut_and_the_seed_decides_which() -> None:
    one, other = power.chunk(CHUNK), power.chunk(CHUNK)
    assert one.failures == []
    assert one.tried == 60
    assert one == other
    assert all(one.counts[f"writes {fate}"] for fate in power.FATES)


def test_a_journal_that_reports_before_it_syncs_loses_what_it_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Disk.do
    monkeypatch.setattr(Disk, "do", lambda disk, op: None if op.kind == "sync" else real(disk, op))
    found = power.chunk(CHUNK)
    assert found.failed > 5


def test_a_chain_that_nobody_walks_passes_over_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(_seq: int, _anchor: bytes, records: object) -> None:
        assert [*records] != [None]  # type: ignore[misc]  # walked, and believed

    monkeypatch.setattr(store, "verify", trusting)
    monkeypatch.setattr(power, "DAMAGED", 1.0)
    assert "was passed over" in "".join(power.chunk(CHUNK).failures)


def test_a_half_written_commit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_parts(self: store.Store, changes: list[store.Change]) -> int:
        return [real(self, [change]) for change in changes][-1]

    real = store.Store.commit
    monkeypatch.setattr(store.Store, "commit", in_parts)
    assert "what is there was never so" in "".join(power.chunk((3, 0, 250)).failures)


def test_the_disk_records_what_sqlite_does_and_gives_it_back() -> None:
    disk = Disk()
    with mounted(disk) as vfs:
        journal = store.Store("j", vfs)
        journal.open()
        journal.commit([store.Change(event=store.Draft(1, "kind", None, None, None, "{}"))])
        assert journal.seq == 1
        journal.close()
    assert {op.kind for op in disk.history} >= {"write", "sync"}
    assert Op("sync", "j-wal") in disk.history
    with mounted(Disk({name: bytes(one) for name, one in disk.files.items()})) as vfs:
        again = store.Store("j", vfs)
        assert again.open() is None
        assert again.seq == 1
        again.close()


@pytest.mark.parametrize("damage", ["DELETE FROM log", "UPDATE OR REPLACE log SET first_seq = 'x'", "DROP TABLE log"])
def test_a_journal_without_its_first_page_as_it_was_is_refused_by_name(damage: str) -> None:
    files = _some_journal()
    disk = Disk(files)
    with mounted(disk) as vfs:
        connection = apsw.Connection(power.FILE, vfs=vfs)
        connection.execute(damage)
        connection.close()
        with pytest.raises(store.StoreError, match=power.FILE):
            store.Store(power.FILE, vfs).open()


def _some_journal() -> power.Files:
    disk = Disk()
    with mounted(disk) as vfs:
        journal = store.Store(power.FILE, vfs)
        journal.open()
        journal.commit([store.Change(event=store.Draft(1, "kind", None, None, None, "{}"))])
        journal.close()
    return {name: bytes(one) for name, one in disk.files.items()}
