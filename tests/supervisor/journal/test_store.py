"""The journal's file."""

from __future__ import annotations

import json
import os
import shutil
import stat

import apsw
import pytest

from supervisor.journal import store as module
from supervisor.journal.numbers import Draft
from supervisor.journal.schema import MIGRATIONS
from supervisor.journal.store import Change, NoRoomError, Store, StoreError
from tests.supervisor.journal.conftest import event, tampered


def test_events_are_numbered_without_a_gap_across_lives(open_store):
    first = open_store()
    assert first.commit([event(), event("daemon_stopped")]) == 2
    first.close()
    second = open_store()
    assert (second.life, second.commit([event()])) == (2, 3)
    assert [found.seq for found in second.events(0, 10)] == [1, 2, 3]


def test_a_commit_that_fails_writes_nothing_and_uses_up_no_number(open_store):
    store = open_store()
    store.commit([event()])
    with pytest.raises(NoRoomError):
        store.commit([event("daemon_stopped"), Change("INSERT INTO nowhere VALUES (1)")])
    assert store.commit([event("daemon_recovered")]) == 2
    assert [found.kind for found in store.events(0, 10)] == ["daemon_started", "daemon_recovered"]


def test_events_are_found_behind_a_number_of_a_call_and_of_a_uid(open_store):
    store = open_store()
    store.commit([event(call="c_1", uid=1), event(call="c_2", uid=2), event(call="c_1", uid=1), event()])
    assert [found.seq for found in store.events(1, 2)] == [2, 3]
    assert [found.seq for found in store.events(0, 10, call="c_1")] == [1, 3]
    assert [found.seq for found in store.events(0, 10, uid=2)] == [2]


def test_events_of_a_run_are_numbered_on_their_own_without_a_gap_across_commits_and_lives(open_store, monkeypatch):
    monkeypatch.setattr("supervisor.journal.numbers.MOST_RUNS", 1)
    first = open_store()
    first.commit([event(run="r_1", data='{"a":1}'), event(), event(run="r_2"), event(run="r_1")])
    with pytest.raises(NoRoomError):
        first.commit([event(run="r_1"), Change("INSERT INTO nowhere VALUES (1)")])
    first.commit([event(run="r_2"), event(run="r_1")])
    first.close()
    second = open_store()
    second.commit([event(run="r_1"), event(run="r_2")])
    assert [found.data["run_seq"] for found in second.events(0, 10, run="r_1")] == [1, 2, 3, 4]
    assert [found.data["run_seq"] for found in second.events(0, 10, run="r_2")] == [1, 2, 3]
    assert second.events(0, 1)[0].data == {"run_seq": 1, "a": 1}
    assert second.events(1, 1)[0].data == {}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET data = '{\"x\":1}' WHERE seq = 2",
        "DELETE FROM events WHERE seq = 2",
        "UPDATE events SET hash = zeroblob(32) WHERE seq = 2",
    ],
)
def test_what_somebody_else_changed_in_the_middle_shows_at_the_next_start(path, open_store, statement):
    store = open_store()
    store.commit([event() for _ in range(4)])
    store.close()
    tampered(path, statement)
    again = Store(path)
    broken = again.open()
    assert broken is not None
    assert broken.seq == 2
    assert again.commit([event()]) == 5
    again.close()


def test_old_events_go_from_the_front_and_the_rest_still_verifies(path, open_store):
    store = open_store()
    store.commit([event(at_ms=number) for number in range(1, 11)])
    assert store.prune_events(before_ms=4, most=1_000) == 3
    assert store.prune_events(before_ms=4, most=1_000) == 0
    assert store.prune_events(before_ms=0, most=5) == 2
    store.close()
    again = Store(path)
    assert again.open() is None
    assert [found.seq for found in again.events(0, 20)] == [6, 7, 8, 9, 10]
    assert again.commit([event()]) == 11
    again.close()


def test_the_last_event_stays_so_that_its_number_is_never_used_again(open_store):
    store = open_store()
    store.commit([event(at_ms=1), event(at_ms=2)])
    store.prune_events(before_ms=1_000, most=1_000)
    store.close()
    again = open_store()
    assert again.commit([event()]) == 3


def test_the_file_and_its_side_files_are_private(path, open_store):
    before = os.umask(0)
    try:
        open_store().commit([event()])
    finally:
        os.umask(before)
    files = [path, path + "-wal", path + "-shm"]
    assert [stat.S_IMODE(os.stat(file).st_mode) for file in files] == [0o600] * 3


def test_a_file_of_a_later_version_is_refused_and_left_alone(path, open_store):
    open_store().close()
    tampered(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match=f"version {len(MIGRATIONS) + 1}"):
        Store(path).open()


@pytest.mark.parametrize("content", [b"no database at all" * 500, b"SQLite format 3\0" + b"\xff" * 8_000])
def test_a_file_that_is_no_journal_is_refused_by_name(path, content):
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(StoreError, match=path):
        Store(path).open()
    with open(path, "rb") as file:
        assert file.read() == content


def test_a_link_in_the_place_of_the_file_is_not_followed(path, tmp_path):
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(StoreError):
        Store(path).open()
    assert not (tmp_path / "elsewhere").exists()


def test_what_was_committed_is_there_for_another_reader_at_once(path, open_store):
    open_store().commit([event()])
    reader = apsw.Connection(path)
    assert list(reader.execute("SELECT seq, kind FROM events")) == [(1, "daemon_started")]
    reader.close()


def test_a_log_that_was_given_its_size_holds_what_was_committed_before_and_after(path, tmp_path, open_store):
    store = open_store()
    store.commit([event("daemon_started")])
    store.reserve()
    size = os.stat(path + "-wal").st_size
    store.commit([event("daemon_recovered")])
    assert os.stat(path + "-wal").st_size == size > 4_000_000
    killed = str(tmp_path / "killed.db")
    for suffix in ("", "-wal"):
        shutil.copy(path + suffix, killed + suffix)
    again = Store(killed)
    assert again.open() is None
    assert [found.kind for found in again.events(0, 10)] == ["daemon_started", "daemon_recovered"]
    again.close()


def test_what_is_left_of_a_disk_that_is_nearly_full_is_not_kept_for_the_log(path, open_store, monkeypatch):
    store = open_store()
    size = os.stat(path + "-wal").st_size
    monkeypatch.setattr(module, "_PLENTY_OF_LOGS", 1 << 60)
    store.reserve()
    assert os.stat(path + "-wal").st_size == size


def test_a_log_is_written_over_and_grows_no_further_than_what_was_reserved(path, open_store):
    store = open_store()
    store.reserve()
    size = os.stat(path + "-wal").st_size
    for _ in range(60):
        store.commit([Change(event=Draft(5, "call_refused", None, None, None, json.dumps({"text": "x" * 150_000})))])
    assert os.stat(path + "-wal").st_size == size


def test_events_of_a_run_are_found_by_their_index_however_many_others_there_are(open_store):
    store = open_store()
    query = f"EXPLAIN QUERY PLAN {module._EVENTS} AND run = ? ORDER BY seq LIMIT 10"
    ((*_, plan),) = store.rows(query, (0, "r_1"))
    assert "events_of_run (run=? AND seq>?)" in plan
    ((*_, plan),) = store.rows(f"EXPLAIN QUERY PLAN {module._LAST_OF_RUN}", ("r_1",))
    assert "events_of_run (run=?)" in plan


@pytest.mark.case("B094")
@pytest.mark.parametrize(
    "change", ["data = zeroblob(9)", "data = '[1]'", "data = 7", "at_ms = 'x'", "kind = zeroblob(4)", "hash = 'x'"]
)
def test_a_record_that_is_none_any_more_hides_nothing_behind_it(open_store, path, change):
    open_store().commit([event(), event(), event()])
    tampered(path, f"UPDATE events SET {change} WHERE seq = 2")
    found = open_store().events(0, 10)
    assert [one.seq for one in found] == [1, 2, 3]
    assert [one.kind for one in found] == ["daemon_started", "event_unreadable", "daemon_started"]
