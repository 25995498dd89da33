"""What the disk has of approvals, and what the next life finds of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor.core.approvals import State
from supervisor.core.checkpoints import Checkpoint, digest
from supervisor.core.idempotency import DeliveryKey
from supervisor.core.policy import Action
from supervisor.journal import approval_rows as rows
from supervisor.journal.approval_rows import Decision, StoredApproval
from supervisor.journal.store import Store

ARGUMENTS = '{ "n":1e0, "t":"ä\\u0000" }'


def checkpoint(name: str = "a_1", asked_at_ms: int = 1_000) -> Checkpoint:
    claim = DeliveryKey(b"\x00\xff", b"said", "down")
    return Checkpoint(
        name,
        f"c{name}",
        7,
        "r",
        "pay",
        "hash",
        ARGUMENTS,
        "fp",
        "key",
        asked_at_ms,
        2_000,
        "why",
        "v1",
        Action.ASK,
        claim=claim,
    )


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()


def ask(store: Store, frozen: Checkpoint, pending: bool = True) -> None:
    store.commit(rows.asked(frozen, frozen.packed()))
    if pending:
        store.commit(rows.pending(frozen.approval))


def only(store: Store) -> StoredApproval:
    (found,) = rows.read(store)
    return found


@pytest.mark.behaviour("M116")
def test_what_was_frozen_comes_back_to_the_byte(store: Store) -> None:
    frozen = checkpoint()
    ask(store, frozen)
    assert only(store) == StoredApproval("a_1", "pending", frozen.packed(), None, True)
    (event,) = store.events(0, 10)
    assert (event.kind, event.call, event.run, event.uid) == ("approval_asked", "ca_1", "r", 7)
    assert event.data["checkpoint_sha256"] == digest(frozen.packed())


def test_one_that_nobody_has_heard_of_says_so(store: Store) -> None:
    ask(store, checkpoint(), pending=False)
    assert only(store).state == rows.ASKING
    store.commit(rows.pending("a_1"))
    store.commit(rows.decided(checkpoint(), Decision(State.VOID, None, 1_500)))
    store.commit(rows.pending("a_1"))
    assert only(store).state == "void", "what was decided is not asked again"


@pytest.mark.case("B090")
@pytest.mark.parametrize("change", ["'1e0', '1e9'", "'ca_1', 'ca_2'", "'pay', 'sell'"])
def test_a_checkpoint_that_somebody_has_changed_is_found(store: Store, change: str) -> None:
    ask(store, checkpoint())
    store._writer.execute(
        f"UPDATE approvals SET checkpoint = CAST(replace(CAST(checkpoint AS TEXT), {change}) AS BLOB)"
    )
    assert only(store).packed != checkpoint().packed()
    assert not only(store).intact
    store._writer.execute("UPDATE approvals SET checkpoint = x'00'")
    assert not only(store).intact


def test_a_checkpoint_whose_event_is_gone_is_not_known_to_be_whole(store: Store) -> None:
    ask(store, checkpoint())
    store._writer.execute("DELETE FROM events")
    assert not only(store).intact


def test_what_became_of_one_is_known(store: Store) -> None:
    ask(store, checkpoint())
    decision = Decision(State.CONSUMED, 0, 1_500, "fine", "tool", 2, '{"n": 2}', "c_2")
    store.commit((*rows.decided(checkpoint(), decision), *rows.consumed(checkpoint(), "c_2", 1_500)))
    assert only(store).decision == decision
    _, decided, consumed = store.events(0, 10)
    assert (decided.kind, decided.data["decision"], decided.data["by"]) == ("approval_decided", "approve", 0)
    assert (consumed.kind, consumed.data["executed"]) == ("approval_consumed", "c_2")


def test_old_ones_go_and_those_that_wait_stay(store: Store) -> None:
    for name, asked_at_ms in (("a_1", 1_000), ("a_2", 1_000), ("a_3", 3_000)):
        ask(store, checkpoint(name, asked_at_ms))
    for name in ("a_1", "a_3"):
        store.commit(rows.decided(checkpoint(name), Decision(State.REJECTED, 7, 3_500)))
    store.commit(rows.too_old(2_000))
    assert [found.id for found in rows.read(store)] == ["a_2", "a_3"]


def test_one_that_cannot_be_read_waits_for_nobody(store: Store) -> None:
    ask(store, checkpoint())
    store.commit(rows.unreadable("a_1"))
    assert only(store).state == "void"
