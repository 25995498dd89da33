from __future__ import annotations

from collections.abc import Callable

from supervisor.journal.run_rows import (
    AccountRow,
    Charge,
    count_accounts,
    look_up,
    opened,
    read_accounts,
    read_charges,
    read_parts,
    read_runs,
    settled,
    suspended,
    suspended_at,
    too_old,
    total,
    used,
)
from supervisor.journal.store import Store
from tests.supervisor.core.turning import DONE, WAITS
from tests.supervisor.journal.conftest import event


def test_what_an_account_stands_at_names_the_last_event_that_is_in_it(open_store: Callable[[], Store]) -> None:
    store = open_store()
    store.commit([used(AccountRow("tenant a", {}, 0), 1)])
    later = used(AccountRow("user a/1", {"steps": 2}, 7), 1)
    store.commit([event(run="r"), event(run="r"), later, event(run="r"), used(AccountRow("session s", {}, 0, 1), 1)])
    assert set(map(repr, read_accounts(store))) == {
        repr(AccountRow("tenant a", {}, 0, 0)),
        repr(AccountRow("user a/1", {"steps": 2}, 7, 2)),
        repr(AccountRow("session s", {}, 0, 1)),
    }
    store.commit([used(AccountRow("user a/1", {"steps": 3}, 8), 1)])
    assert AccountRow("user a/1", {"steps": 3}, 8, 3) in read_accounts(store)


def test_of_sessions_those_used_last_are_read_and_those_in_use(open_store: Callable[[], Store]) -> None:
    store = open_store()
    names = ["tenant a", *(f"session 7/{number}" for number in range(5)), "user a/7"]
    store.commit([used(AccountRow(name, {}, 0), at) for at, name in enumerate(names)])
    found = {row.node for row in read_accounts(store, 2, ["session 7/1", "session 7/none"])}
    assert found == {"tenant a", "user a/7", "session 7/4", "session 7/3", "session 7/1"}
    assert (count_accounts(store), len(read_accounts(store))) == (7, 7)


def test_a_session_that_nobody_has_used_for_long_is_forgotten_and_one_in_use_is_not(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    rows = [("session 7/old", 1), ("session 7/waits", 1), ("session 7/new", 9), ("user a/7", 1)]
    store.commit([used(AccountRow(name, {"steps": 1}, 0), at) for name, at in rows])
    store.commit(too_old(5, ["session 7/waits"]))
    assert {row.node for row in read_accounts(store)} == {"session 7/waits", "session 7/new", "user a/7"}


def test_what_is_looked_up_is_what_its_own_commit_has_written(open_store: Callable[[], Store]) -> None:
    store = open_store()
    store.commit([used(AccountRow("session 7/s", {"steps": 1}, 0), 1)])
    found: list[AccountRow] = []
    nobody = [AccountRow("session 7/t", {}, 0)]
    later = used(AccountRow("session 7/s", {"steps": 2}, 0), 1)
    store.commit([look_up("session 7/s", found), event(run="r"), look_up("session 7/t", nobody), later])
    assert (found, nobody) == ([AccountRow("session 7/s", {"steps": 2}, 0, 1)], [])


def test_charges_are_those_of_the_run_and_can_be_summed_from_any_event_on(open_store: Callable[[], Store]) -> None:
    store = open_store()
    store.commit(
        [
            event(run="r", data='{"charge":{"steps":1}}'),
            event(run="r", data='{"charge":null}'),
            event(run="other", data='{"charge":{"steps":50}}'),
            event(run="r", data='{"charge":{"tool_calls":1,"steps":1}}'),
            event(run="r", data='{"charge":{"tool_calls":-1}}'),
            event(run="r"),
        ]
    )
    charges = read_charges(store, "r")
    assert charges == [Charge(1, {"steps": 1}), Charge(4, {"tool_calls": 1, "steps": 1}), Charge(5, {"tool_calls": -1})]
    assert total(charges) == {"steps": 2, "tool_calls": 0}
    assert total(charges, 1) == {"steps": 1, "tool_calls": 0}
    assert total(charges, 5) == {}


def test_every_run_that_waits_is_found_however_many_there_are_and_the_newest_of_those_that_are_over(
    open_store: Callable[[], Store],
) -> None:
    store = open_store()
    for number in range(4):
        for name in (f"waits{number}", f"over{number}"):
            store.commit(list(opened(name, 7, {"parent": None}, number, {})))
        store.commit(list(suspended(f"waits{number}", 7, {}, WAITS, number, {})))
        store.commit(list(settled(f"over{number}", 7, DONE, number, {})))
    found = [row.id for row in read_runs(store, 2)]
    assert sorted(found[2:]) == [f"waits{number}" for number in range(4)]
    assert found[:2] == ["over2", "over3"]


def test_what_is_part_of_a_run_is_found_also_when_it_is_long_over(open_store: Callable[[], Store]) -> None:
    store = open_store()
    for name, parent in (("r", None), ("old", "r"), ("new", "r"), ("below", "new")):
        store.commit(list(opened(name, 7, {"parent": parent}, 1, {})))
    store.commit(list(settled("old", 7, DONE, 1, {})))
    parts = {run: sorted(names) for run, names in read_parts(store).items()}
    assert parts == {"r": ["new", "old"], "new": ["below"]}


def test_a_run_was_suspended_where_its_last_such_event_stands(open_store: Callable[[], Store]) -> None:
    store = open_store()
    store.commit([event("run_suspended", run="r"), event(run="r"), event("run_suspended", run="r"), event(run="r")])
    assert (suspended_at(store, "r"), suspended_at(store, "other")) == (3, 0)
