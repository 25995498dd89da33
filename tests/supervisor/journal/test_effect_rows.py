"""Effects of unknown outcome on the disk: which are open, how long, and how one is closed."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import CallResult, Delivery, Status
from supervisor.journal import effect_rows, rows
from supervisor.journal.effect_rows import EffectRow
from supervisor.journal.recovery import Clocks, recover
from supervisor.journal.results import pack
from supervisor.journal.schema import OPEN_EFFECT
from supervisor.journal.store import Change, Store
from tests.supervisor.journal.conftest import row

CLOCKS = Clocks(now_ns=1_000_000_000, wall_ms=50_000)


def ended(call: str, delivery: Delivery = Delivery.UNKNOWN, **more: Any) -> tuple[Change, ...]:
    result = CallResult(call, "shell", Status.KILLED, delivery=delivery)
    return rows.settled(row(call, **more), result, pack(7, result, (), 0), 60_000, 1_000)


def names(store: Store, most: int = 100) -> list[str]:
    return [effect.call for effect in effect_rows.open_effects(store, most)]


def test_a_call_that_may_have_changed_something_unseen_is_an_open_effect_and_no_other_is(open_store) -> None:
    store = open_store()
    for number, delivery in enumerate(Delivery):
        store.commit(ended(f"c_{number}", delivery))
    store.commit(ended("c_reads", read_only=True))
    (effect,) = effect_rows.open_effects(store, 100)
    assert effect == EffectRow("c_2", "shell", None, 7, "c_2", 1_000, "{}", None, None)


@pytest.mark.behaviour("M117")
def test_what_a_killed_daemon_left_is_open_and_so_is_what_earlier_lives_did(open_store, tmp_path) -> None:
    store = open_store()
    store.commit([*ended("c_1"), *rows.claimed(row("c_2"), 1_000), *rows.claimed(row("c_3", read_only=True), 1_000)])
    assert [effect.call for effect in recover(store, str(tmp_path), 60_000, CLOCKS).effects] == ["c_1", "c_2"]
    assert names(open_store()) == ["c_1", "c_2"]


@pytest.mark.behaviour("M116")
def test_neither_the_time_of_its_result_nor_its_age_takes_an_open_effect(open_store) -> None:
    store = open_store()
    store.commit(ended("c_1"))
    store.commit([*rows.forgotten("c_1"), *rows.too_old(99_000)])
    assert effect_rows.open_effects(store, 100)[0].arguments == "{}"
    assert effect_rows.arguments_of(store, "c_1") == "{}"
    assert [*store.rows("SELECT result FROM calls")] == [(None,)]


def test_arguments_as_long_as_a_frame_go_with_the_result(open_store) -> None:
    store = open_store()
    long = row("c_1")
    long.arguments = "x" * 100_000
    result = CallResult("c_1", "shell", Status.KILLED, delivery=Delivery.UNKNOWN)
    store.commit(rows.settled(long, result, pack(7, result, (), 0), 60_000, 1_000))
    store.commit(rows.forgotten("c_1"))
    assert (names(store), effect_rows.arguments_of(store, "c_1")) == (["c_1"], None)


def test_a_closed_one_is_told_once_and_goes_when_it_is_old(open_store) -> None:
    store = open_store()
    store.commit(ended("c_1"))
    (effect,) = effect_rows.open_effects(store, 100)
    store.commit(effect_rows.closed(effect, "it was there", 7, 2_000))
    assert names(store) == []
    assert [*store.rows("SELECT closed, closed_ms, closed_by FROM calls")] == [("it was there", 2_000, 7)]
    event = store.events(0, 10)[-1]
    assert (event.kind, event.call, event.data["note"], event.data["by"]) == ("effect_closed", "c_1", "it was there", 7)
    store.commit([*rows.forgotten("c_1"), *rows.too_old(99_000)])
    assert [*store.rows("SELECT id FROM calls")] == []


@pytest.mark.parametrize(("state", "place"), [("done", b"place"), ("not_done", None)])
def test_only_what_was_not_done_gives_its_delivery_key_back(open_store, state: str, place: bytes | None) -> None:
    store = open_store()
    store.commit(ended("c_1", place=b"place"))
    (effect,) = effect_rows.open_effects(store, 100)
    store.commit(effect_rows.reconciled(effect, state, "look says so", "c_1.reconcile", 2_000))
    assert names(store) == []
    assert [*store.rows("SELECT place, closed_by FROM calls")] == [(place, None)]
    event = store.events(0, 10)[-1]
    assert (event.kind, event.data["state"], event.data["asked"]) == ("effect_reconciled", state, "c_1.reconcile")


def test_open_effects_are_found_by_their_own_index(open_store) -> None:
    store = open_store()
    question = f"SELECT id FROM calls WHERE {OPEN_EFFECT} ORDER BY submitted_ms DESC LIMIT 5"
    (plan,) = list(store.rows(f"EXPLAIN QUERY PLAN {question}"))
    assert "USING INDEX calls_effects" in plan[3]


def test_the_newest_are_read_oldest_first(open_store) -> None:
    store = open_store()
    for number in range(4):
        one = row(f"c_{number}")
        one.submitted_ms = number
        result = CallResult(one.id, "shell", Status.KILLED, delivery=Delivery.UNKNOWN)
        store.commit(rows.settled(one, result, pack(7, result, (), 0), 60_000, 1_000))
    assert names(store, 3) == ["c_1", "c_2", "c_3"]
