"""Numbers of events within their run."""

from __future__ import annotations

import json

import pytest

from supervisor.journal import numbers as module
from supervisor.journal import run_rows
from supervisor.journal.numbers import Draft
from supervisor.journal.store import Change, NoRoomError, Store
from tests.supervisor.core.turning import DONE, WAITS
from tests.supervisor.journal.conftest import tampered

MANY = 300


def of_run(run: str | None, data: str = "{}", **more: object) -> Change:
    return Change(event=Draft(5, "run_changed", None, run, 1, data), **more)


def numbers_of(store: Store, run: str) -> list[object]:
    return [found.data.get("run_seq") for found in store.events(0, 1_000, run=run)]


def test_the_events_of_a_run_are_numbered_without_a_gap_whatever_comes_in_between(open_store):
    store = open_store()
    store.commit([of_run("r_1"), of_run("r_2"), of_run(None), of_run("r_1")])
    store.commit([of_run("r_2"), of_run("r_1")])
    assert (numbers_of(store, "r_1"), numbers_of(store, "r_2")) == ([1, 2, 3], [1, 2])


def test_the_next_life_goes_on_where_the_last_one_stopped(open_store):
    first = open_store()
    first.commit([of_run("r_1"), of_run("r_1")])
    first.close()
    again = open_store()
    again.commit([of_run("r_2"), of_run("r_1")])
    assert numbers_of(again, "r_1") == [1, 2, 3]


def test_a_commit_that_fails_gives_its_numbers_back(open_store):
    store = open_store()
    store.commit([of_run("r_1")])
    with pytest.raises(NoRoomError):
        store.commit([of_run("r_1"), of_run("r_2"), Change("INSERT INTO nowhere VALUES (1)")])
    store.commit([of_run("r_2"), of_run("r_1")])
    assert (numbers_of(store, "r_1"), numbers_of(store, "r_2")) == ([1, 2], [1])


def test_what_is_said_of_an_event_stands_behind_its_number(open_store):
    store = open_store()
    store.commit([of_run("r_1", '{"run":"x","n":[1]}')])
    ((data,),) = store.rows("SELECT data FROM events")
    assert data == '{"run_seq":1,"run":"x","n":[1]}'
    assert json.loads(data) == {"run_seq": 1, "run": "x", "n": [1]}


def test_the_hash_of_an_event_covers_its_number(path, open_store):
    store = open_store()
    store.commit([of_run("r_1") for _ in range(3)])
    store.close()
    tampered(path, "UPDATE events SET data = replace(data, '2', '4') WHERE seq = 2")
    broken = Store(path).open()
    assert broken is not None
    assert broken.seq == 2


def test_a_run_that_is_over_is_kept_in_mind_no_longer_and_its_numbers_go_on_all_the_same(open_store):
    store = open_store()
    for _ in range(2):
        store.commit([of_run("r_1"), of_run("r_1", over="r_1")])
        assert len(store._runs) == 0
    assert numbers_of(store, "r_1") == [1, 2, 3, 4]


def test_a_run_is_not_forgotten_by_a_commit_that_failed(open_store):
    store = open_store()
    store.commit([of_run("r_1")])
    with pytest.raises(NoRoomError):
        store.commit([Change(over="r_1"), Change("INSERT INTO nowhere VALUES (1)")])
    assert len(store._runs) == 1


def test_runs_that_nobody_ends_do_not_fill_the_memory(open_store, monkeypatch):
    monkeypatch.setattr(module, "MOST_RUNS", 10)
    store = open_store()
    store.commit([of_run(f"r_{number}") for number in range(MANY)])
    assert len(store._runs) == 10
    store.commit([of_run("r_0"), of_run(f"r_{MANY - 1}")])
    assert (numbers_of(store, "r_0"), numbers_of(store, f"r_{MANY - 1}")) == ([1, 2], [1, 2])


def pruned(store: Store, most: int) -> None:
    while store.prune_events(0, most):
        pass


def test_a_run_that_waits_longer_than_its_events_are_kept_goes_on_with_its_numbers(open_store):
    first = open_store()
    first.commit([*run_rows.opened("r_1", 7, {}, 1, {}), *run_rows.suspended("r_1", 7, {}, WAITS, 1, {})])
    first.commit([of_run("r_2")])
    pruned(first, 1)
    assert numbers_of(first, "r_1") == []
    first.close()
    again = open_store()
    again.commit([of_run("r_2"), of_run("r_1")])
    pruned(again, 1)
    again.close()
    third = open_store()
    third.commit([*run_rows.settled("r_1", 7, DONE, 1, {})])
    assert numbers_of(third, "r_1") == [3, 4]


def test_of_a_run_whose_events_went_in_part_the_ones_that_are_left_say_how_many_there_were(open_store):
    first = open_store()
    first.commit([*run_rows.opened("r_1", 7, {}, 1, {}), of_run("r_1"), of_run("r_1")])
    pruned(first, 2)
    first.close()
    again = open_store()
    again.commit([of_run("r_1")])
    assert numbers_of(again, "r_1") == [2, 3, 4]


def test_a_commit_whose_question_finds_no_answer_gives_its_numbers_back(open_store):
    store = open_store()

    def look(asked: Store) -> None:
        list(asked.rows("SELECT * FROM nowhere"))

    with pytest.raises(NoRoomError):
        store.commit([of_run("r_1"), Change(look=look)])
    store.commit([of_run("r_1")])
    assert numbers_of(store, "r_1") == [1]
