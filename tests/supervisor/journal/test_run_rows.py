from __future__ import annotations

from collections.abc import Callable

from supervisor.journal.run_rows import AccountRow, Charge, read_accounts, read_charges, total, used
from supervisor.journal.store import Store
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
