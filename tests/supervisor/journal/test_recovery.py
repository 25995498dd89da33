"""What a new life makes of the last one's journal."""

from __future__ import annotations

import os

import pytest

from protocol import CallResult, Delivery, Status
from supervisor.journal import rows
from supervisor.journal.recovery import Clocks, recover
from supervisor.journal.results import digest, pack
from tests.supervisor.journal.conftest import row

TTL_MS = 60_000
CLOCKS = Clocks(now_ns=1_000_000_000, wall_ms=50_000)


def claimed(store, call: str, *states: str, **more) -> None:
    store.commit([*rows.claimed(row(call, **more), 1_000)])
    for state in states:
        store.commit([*rows.advanced(row(call, **more), state, 1_000)])


def settled(call: str, content: str = "", place: bytes | None = None) -> list[rows.Change]:
    result = CallResult(call, "shell", Status.OK, content=content, delivery=Delivery.SUCCEEDED)
    kept = pack(7, result, ("/f",), 0)
    return [*rows.settled(row(call, place), result, kept, 50_000 + TTL_MS, 1_000)]


@pytest.mark.parametrize("states", [(), (rows.SENT,), (rows.SENT, rows.ACCEPTED)])
def test_a_claimed_call_may_have_run_and_is_settled_as_unknown(open_store, tmp_path, states):
    store = open_store()
    claimed(store, "c_1", *states)
    recovered = recover(store, str(tmp_path), TTL_MS, CLOCKS)
    (kept,) = recovered.kept
    result = kept.result
    assert recovered.interrupted == 1
    assert (result.status, result.reason, result.delivery) == ("unknown", "daemon_restarted", "unknown")
    assert (result.retryable, result.durable, result.idempotency_key) == (False, True, "c_1")
    assert [event.kind for event in store.events(0, 10)][-1] == "call_ended"


def test_a_planned_call_did_not_run_and_may_be_sent_again(open_store, tmp_path):
    store = open_store()
    store.commit([*rows.planned(row("c_1"), 1_000)])
    (kept,) = recover(store, str(tmp_path), TTL_MS, CLOCKS).kept
    assert (kept.result.delivery, kept.result.retryable) == ("not_delivered", True)


def test_a_read_only_call_may_be_sent_again_whatever_became_of_it(open_store, tmp_path):
    store = open_store()
    claimed(store, "c_1", rows.SENT, read_only=True)
    (kept,) = recover(store, str(tmp_path), TTL_MS, CLOCKS).kept
    assert (kept.result.delivery, kept.result.retryable) == ("unknown", True)


def test_a_second_recovery_finds_nothing_to_settle(open_store, tmp_path):
    store = open_store()
    claimed(store, "c_1")
    first = recover(store, str(tmp_path), TTL_MS, CLOCKS)
    store.close()
    second = recover(open_store(), str(tmp_path), TTL_MS, CLOCKS)
    assert second.interrupted == 0
    assert [kept.packed for kept in second.kept] == [kept.packed for kept in first.kept]


def test_results_come_back_byte_for_byte_with_the_time_they_have_left(open_store, tmp_path):
    store = open_store()
    changes = settled("c_1", "hello")
    store.commit(changes)
    (kept,) = recover(store, str(tmp_path), TTL_MS, CLOCKS).kept
    assert kept.result.content == "hello"
    assert (kept.uid, kept.files) == (7, ("/f",))
    assert kept.until_ns == CLOCKS.now_ns + TTL_MS * 1_000_000


def test_a_settled_call_is_not_interrupted(open_store, tmp_path):
    store = open_store()
    claimed(store, "c_1", rows.SENT, rows.ACCEPTED)
    store.commit(settled("c_1"))
    recovered = recover(store, str(tmp_path), TTL_MS, CLOCKS)
    assert (recovered.interrupted, recovered.kept[0].result.status) == (0, "ok")


def test_delivery_keys_stay_taken_also_when_the_result_is_forgotten(open_store, tmp_path):
    store = open_store()
    store.commit(settled("c_1", place=b"place"))
    store.commit([*rows.forgotten("c_1"), *rows.too_old(500)])
    recovered = recover(store, str(tmp_path), TTL_MS, CLOCKS)
    assert (recovered.kept, recovered.keys) == ([], [(b"place", b"said", "c_1")])


def test_rows_without_a_key_go_with_their_result_and_the_others_when_they_are_old(open_store, tmp_path):
    store = open_store()
    store.commit([*settled("c_1"), *settled("c_2", place=b"p"), *rows.claimed(row("c_3"), 1)])
    store.commit([*rows.forgotten("c_1"), *rows.forgotten("c_2"), *rows.too_old(500)])
    assert [call for (call,) in store.rows("SELECT id FROM calls ORDER BY id")] == ["c_2", "c_3"]
    store.commit(rows.too_old(2_000))
    assert [call for (call,) in store.rows("SELECT id FROM calls")] == ["c_3"]


def test_a_key_whose_call_came_to_nothing_stands_for_the_one_that_was_sent_again(open_store, tmp_path):
    store = open_store()
    store.commit(settled("c_1", place=b"place"))
    store.commit([*rows.claimed(row("c_2", b"place"), 1_000)])
    assert recover(store, str(tmp_path), TTL_MS, CLOCKS).keys == [(b"place", b"said", "c_2")]


def test_what_an_interrupted_call_had_written_is_shown(open_store, tmp_path):
    store = open_store()
    claimed(store, "c_1", rows.SENT)
    (tmp_path / "c_1.both").write_bytes(b"half\n")
    (kept,) = recover(store, str(tmp_path), TTL_MS, CLOCKS).kept
    output = kept.result.output
    assert (output.bytes, output.view, output.path) == (5, "half\n", os.path.join(tmp_path, "c_1.both"))
    assert kept.files == (output.path,)
    assert kept.result.output.sha256 is not None


def test_a_result_that_was_told_without_the_disk_comes_back_as_it_was_told(open_store, tmp_path):
    """One terminal record all the same, and the digest of both is the same."""
    store = open_store()
    result = CallResult("c_1", "shell", Status.OK, durable=True)
    on_its_way = pack(7, result, (), 0)
    changes = rows.settled(row("c_1"), result, on_its_way, 50_000 + TTL_MS, 1_000)
    result.durable = False
    told = pack(7, result, (), 0)
    store.commit([*changes, *rows.amended(told)])
    (kept,) = recover(store, str(tmp_path), TTL_MS, CLOCKS).kept
    assert kept.packed == told.packed
    (event,) = store.events(0, 10)
    assert event.data["result_sha256"] == digest(result, told)


def test_no_question_that_is_asked_often_or_at_a_start_reads_every_row(open_store):
    """By SQLite's own plan: a daemon of a week may have a hundred thousand rows."""
    store = open_store()
    for question, words in (
        (f"SELECT id FROM calls WHERE {rows.STILL_OPEN}", "USING INDEX calls_open"),
        (rows.too_old(5)[0].statement, "USING INDEX calls_by_age"),
        ("SELECT place, said, id FROM calls WHERE place IS NOT NULL", "INDEX calls_by_place"),
    ):
        values = (5,) if "?" in str(question) else ()
        (plan,) = list(store.rows(f"EXPLAIN QUERY PLAN {question}", values))
        assert words in plan[3]
