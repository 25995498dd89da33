from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor import accounts as module
from supervisor.accounts import Accounts
from supervisor.core.budget import Level, Node, Refused
from supervisor.core.periods import Period
from supervisor.core.profiles import Budgets, Effective, Tenant, resolve
from supervisor.journal.run_rows import AccountRow, Charge
from supervisor.journal.store import Change

DAY = 86_400_000
TENANT, USER, SESSION = Node(Level.TENANT, "acme"), Node(Level.USER, "acme/7"), Node(Level.SESSION, "7/s")


class Clock:
    def __init__(self) -> None:
        self.ms = 100 * DAY

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "wall_ms", made)
    return made


def accounts(**tenant: Any) -> Accounts:
    return Accounts(Budgets(resolve({}), {"acme": Tenant("acme", (7,), **tenant)}))


def opened(books: Accounts, name: str, session: str | None = "s", parent: Node | None = None) -> Node:
    effective = books.budgets.effective(7, None, {})
    assert isinstance(effective, Effective)
    return books.open_run(name, 7, session, parent, effective)


def told(changes: list[Change]) -> dict[str, tuple[dict[str, int], int, int | None]]:
    """Node → what it has used, in which period, up to which event (None: all before), as the disk will have it."""
    return {
        node: (msgspec.json.decode(used), period, None if change.numbered else seq[0])
        for change in changes
        for node, used, period, _, *seq in [change.values]
    }


def test_a_run_stands_below_its_session_its_user_and_its_tenant(clock: Clock) -> None:
    books = accounts(limits={"steps": 9}, user_limits={"retries": 8}, session_limits={"tool_calls": 7})
    run = opened(books, "r")
    assert [books.ledger.view(node)[kind].limit for node, kind in ((TENANT, "steps"), (USER, "retries"))] == [9, 8]
    assert books.ledger.view(SESSION)["tool_calls"].limit == 7
    books.ledger.charge(run, {"steps": 1})
    assert {books.ledger.view(node)["steps"].used for node in (run, SESSION, USER, TENANT)} == {1}


def test_a_new_day_begins_for_a_run_that_goes_on(clock: Clock) -> None:
    books = accounts(limits={"steps": 1}, period=Period.DAY)
    run = opened(books, "r")
    books.ledger.charge(run, {"steps": 1})
    assert isinstance(books.ledger.charge(run, {"steps": 1}), Refused)
    clock.ms += DAY
    books.keep_time()
    assert books.ledger.charge(run, {"steps": 1}) == {"steps": 1}


def test_what_was_used_yesterday_is_not_told_as_todays(clock: Clock) -> None:
    books = accounts(period=Period.DAY)
    run = opened(books, "r")
    books.ledger.charge(run, {"steps": 3})
    assert told(list(books.standing(7, "s")))["tenant acme"] == ({"steps": 3}, 100, None)
    clock.ms += DAY
    assert told(list(books.standing(7, "s"))) == {
        "tenant acme": ({}, 101, None),
        "user acme/7": ({}, 101, None),
        "session 7/s": ({"steps": 3}, 0, None),
    }


def test_another_life_begins_with_what_was_told_in_this_period(clock: Clock) -> None:
    books = accounts(period=Period.DAY)
    rows = [AccountRow("tenant acme", {"steps": 5}, 100, 9), AccountRow("user acme/7", {"steps": 5}, 99, 9)]
    books.recall([*rows, AccountRow("session 7/s", {"steps": 4}, 0, 9)])
    opened(books, "r")
    assert [books.ledger.view(node)["steps"].used for node in (TENANT, USER, SESSION)] == [5, 0, 4]


def test_a_lost_run_has_cost_those_above_it_what_they_had_not_been_told_of(clock: Clock) -> None:
    books = accounts()
    books.recall([AccountRow("tenant acme", {"steps": 5, "tool_calls": 2}, 0, 10), AccountRow("session 7/s", {}, 0, 0)])
    charges = [Charge(9, {"steps": 2}), Charge(11, {"steps": 1, "tool_calls": 1}), Charge(12, {"tool_calls": -1})]
    assert told(books.spent_by_lost_run(7, "s", charges)) == {
        "tenant acme": ({"steps": 6, "tool_calls": 2}, 0, 10),
        "user acme/7": ({"steps": 3, "tool_calls": 0}, 0, 0),
        "session 7/s": ({"steps": 3, "tool_calls": 0}, 0, 0),
    }


def test_of_two_lost_runs_each_has_its_cost(clock: Clock) -> None:
    """What is written for the first must not hide what the second had used before."""
    books = accounts()
    books.recall([AccountRow("user acme/7", {"steps": 1}, 0, 1)])
    books.spent_by_lost_run(7, None, [Charge(5, {"steps": 1})])
    assert told(books.spent_by_lost_run(7, None, [Charge(3, {"steps": 1})]))["user acme/7"] == ({"steps": 3}, 0, 1)


def without_room(monkeypatch: pytest.MonkeyPatch) -> Accounts:
    """Accounts that keep one session open beside those with runs, and dropped that of a run which used 2 steps."""
    monkeypatch.setattr(module, "MOST_SESSIONS", 1)
    books = accounts(session_limits={"steps": 3})
    run = opened(books, "r")
    books.ledger.charge(run, {"steps": 2})
    books.close_run(run)
    books.close_run(opened(books, "other", "t"))
    return books


def test_a_session_that_nobody_uses_gives_its_place_to_another_and_comes_back_as_the_disk_has_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = without_room(monkeypatch)
    assert SESSION not in books.ledger
    again = opened(books, "r2")
    assert books.sought(again) == "session 7/s"
    books.found(again, [AccountRow("session 7/s", {"steps": 2}, 0, 9)])
    assert (books.ledger.left(again, "steps"), books.sought(again)) == (1, None)
    assert books.ledger.view(USER)["steps"].used == 2, "it had been counted there already"


def test_what_the_disk_has_of_a_session_is_counted_once_however_many_runs_asked(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = without_room(monkeypatch)
    runs = opened(books, "r2"), opened(books, "r3")
    assert [books.sought(run) for run in runs] == ["session 7/s"] * 2
    for run in runs:
        books.found(run, [AccountRow("session 7/s", {"steps": 2}, 0, 9)])
    assert books.ledger.left(runs[1], "steps") == 1


def test_nothing_is_told_of_a_session_before_the_disk_has_said_what_it_had_used(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = without_room(monkeypatch)
    again = opened(books, "r2")
    assert list(told(list(books.standing(7, "s")))) == ["tenant acme", "user acme/7"]
    books.close_run(again)
    assert SESSION not in books.ledger, "its next run has to ask again"
    assert books.sought(opened(books, "r3")) == "session 7/s"


def test_the_disk_is_asked_only_where_it_may_know_more(clock: Clock) -> None:
    books = accounts()
    books.recall([AccountRow("session 7/s", {"steps": 4}, 0, 9)])
    assert [books.sought(opened(books, f"r{name}", name)) for name in ("s", "t")] == [None, None]
    later = accounts()
    later.recall([AccountRow("session 7/s", {"steps": 4}, 0, 9)], complete=False)
    assert [later.sought(opened(later, f"r{name}", name)) for name in ("s", "t")] == [None, "session 7/t"]


def test_sessions_without_runs_do_not_fill_the_memory_though_a_run_of_the_first_one_waits(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SESSIONS", 2)
    books = accounts()
    opened(books, "waits")
    for number in range(9):
        run = opened(books, f"r{number}", f"s{number}")
        books.found(run, [])
        books.close_run(run)
    assert len(books.ledger) == len([TENANT, USER, SESSION, "waits"]) + 2
    assert books.in_use() == ["session 7/s"]


def test_a_session_of_a_run_that_goes_on_keeps_its_place_though_a_run_below_that_one_ended(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SESSIONS", 1)
    books = accounts()
    run = opened(books, "r")
    books.close_run(opened(books, "below", "s", run))
    books.close_run(opened(books, "other", "t"))
    assert SESSION in books.ledger
    books.close_run(run)
    for name in ("u", "v"):
        another = opened(books, name, name)
        books.found(another, [])
        books.close_run(another)
    assert (SESSION in books.ledger, books.in_use()) == (False, [])
