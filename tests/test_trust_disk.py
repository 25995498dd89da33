"""The trust suites of the journal's file see a journal that does not keep its word."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import apsw
import pytest
import structlog

from supervisor.journal import journal, store
from tests.trust import failing_disk
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


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[int]], str]]:
    """Runs the suite of failing disks in this process, for these operations; what it found wrong."""
    for name in ("_LINGER_S", "_RETRY_S"):
        monkeypatch.setattr(journal, name, failing_disk.QUICK_S)
    for name in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    failing_disk.quick_and_quiet()
    monkeypatch.setattr(failing_disk, "WAIT_S", 1.0)
    yield lambda firsts: "\n".join(failing_disk.part((firsts, 5)).failures)
    structlog.reset_defaults()


AFTER_THE_START = list(range(45, 60))


def test_a_sound_journal_survives_a_disk_that_fails(failing: Callable[[list[int]], str]) -> None:
    assert failing(AFTER_THE_START) == ""


def test_a_journal_that_calls_a_refused_intent_durable_is_seen(
    failing: Callable[[list[int]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: journal.Journal, group: journal.Group) -> None:
        for entry in group.entries:
            entry.tell(True)

    monkeypatch.setattr(journal.Journal, "_fail", fail)
    assert "was told durable and is gone" in failing(AFTER_THE_START)


def test_a_journal_that_goes_on_after_a_failed_sync_is_seen(
    failing: Callable[[list[int]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_FSYNC_CODES", ())
    assert "a sync has failed, and it goes on" in failing(AFTER_THE_START)


def test_a_journal_that_writes_a_refused_intent_later_is_seen(
    failing: Callable[[list[int]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = journal.Journal.append
    monkeypatch.setattr(
        journal.Journal, "append", lambda self, changes, then=None, keep=True: real(self, changes, then, True)
    )
    assert "was refused and is there" in failing(AFTER_THE_START)


def test_the_disk_records_what_sqlite_does_and_gives_it_back() -> None:
    disk = Disk()
    with mounted(disk) as vfs:
        one = store.Store("j", vfs)
        one.open()
        one.commit([store.Change(event=store.Draft(1, "kind", None, None, None, "{}"))])
        assert one.seq == 1
        one.close()
    assert {op.kind for op in disk.history} >= {"write", "sync"}
    assert Op("sync", "j-wal") in disk.history
    with mounted(Disk({name: bytes(content) for name, content in disk.files.items()})) as vfs:
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
        some = store.Store(power.FILE, vfs)
        some.open()
        some.commit([store.Change(event=store.Draft(1, "kind", None, None, None, "{}"))])
        some.close()
    return {name: bytes(one) for name, one in disk.files.items()}
