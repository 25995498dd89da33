"""Deliveries and their keys: who runs, who waits, who is told, who is refused."""

from __future__ import annotations

import itertools
import json

import pytest

from protocol import CallResult, Delivery, Reason, Status
from supervisor.core.arguments import parse, same_form
from supervisor.core.idempotency import (
    VERDICTS,
    Earlier,
    Said,
    Verdict,
    came_to_nothing,
    delivery_key,
    earlier_of,
    idempotency_key,
    said_of,
    verdict,
)


def result(
    status: Status = Status.OK, delivery: Delivery = Delivery.SUCCEEDED, reason: Reason | None = None
) -> CallResult:
    return CallResult("c_1", "t", status, reason=reason, delivery=delivery)


def said(text: str, tool: str = "pay", cwd: str | None = None) -> bytes:
    return said_of(tool, cwd, same_form(parse(text).values))


# ---------------------------------------------------------------- what becomes of a delivery


def test_every_delivery_has_a_verdict() -> None:
    assert set(VERDICTS) == set(itertools.product(Earlier, Said))


@pytest.mark.behaviour("M091")
@pytest.mark.behaviour("M074")
def test_nothing_runs_under_a_key_whose_call_runs_has_ended_or_is_forgotten() -> None:
    ran = {(earlier, same) for earlier in Earlier for same in (True, False) if verdict(earlier, same) is Verdict.RUN}
    assert ran == {(Earlier.NONE, True), (Earlier.NONE, False), (Earlier.CAME_TO_NOTHING, True)}
    assert verdict(Earlier.TOLD, same=True) is Verdict.REPLAY
    assert verdict(Earlier.IN_FLIGHT, same=True) is Verdict.WAIT
    assert verdict(Earlier.FORGOTTEN, same=True) is Verdict.FORGOTTEN


def test_something_else_under_a_known_key_is_a_conflict_whatever_became_of_the_first() -> None:
    known = set(Earlier) - {Earlier.NONE}
    assert {verdict(earlier, same=False) for earlier in known} == {Verdict.CONFLICT}


@pytest.mark.behaviour("M110")
@pytest.mark.behaviour("M117")
@pytest.mark.parametrize(
    ("told", "nothing"),
    [
        (result(), False),
        (result(Status.ERROR, Delivery.FAILED_DEFINITE), False),
        (result(Status.KILLED, Delivery.UNKNOWN, Reason.TIME_BUDGET), False),
        (result(Status.UNKNOWN, Delivery.UNKNOWN, Reason.DAEMON_RESTARTED), False),
        (result(Status.KILLED, Delivery.NOT_DELIVERED, Reason.TIME_BUDGET), True),
        (result(Status.NOT_EXECUTED, Delivery.NOT_DELIVERED, Reason.OVERLOADED), True),
        (result(Status.CANCELLED, Delivery.NOT_DELIVERED, Reason.CLIENT), False),
        (result(Status.CANCELLED, Delivery.NOT_DELIVERED, Reason.SHUTDOWN), True),
        (result(Status.KILLED, Delivery.FAILED_DEFINITE, Reason.TIME_BUDGET), True),
        (result(Status.CRASHED, Delivery.FAILED_DEFINITE, Reason.WORKER_LOST), True),
        (result(Status.KILLED, Delivery.SUCCEEDED, Reason.TIME_BUDGET), False),
    ],
)
def test_only_what_did_not_happen_may_be_sent_again_and_unknown_is_not_failed(told: CallResult, nothing: bool) -> None:
    assert came_to_nothing(told) is nothing
    assert earlier_of(told) is (Earlier.CAME_TO_NOTHING if nothing else Earlier.TOLD)


def test_a_call_whose_result_is_gone_is_not_a_new_one() -> None:
    assert earlier_of(None) is Earlier.FORGOTTEN


# ---------------------------------------------------------------- what was said


@pytest.mark.parametrize(
    "other", ['{"to": "a", "n": 1}', '{\n "to" : "a",\t"n":1 }', '```json\n{"n": 1, "to": "a"}\n```']
)
def test_another_order_and_other_spaces_are_the_same_thing_said(other: str) -> None:
    assert said(other) == said('{"n":1,"to":"a"}')


@pytest.mark.parametrize(
    "other", ['{"n":2,"to":"a"}', '{"n":"1","to":"a"}', '{"n":1}', '{"n":9007199254740993,"to":"a"}']
)
def test_other_values_are_something_else(other: str) -> None:
    assert said(other) != said('{"n":1,"to":"a"}')


def test_another_tool_and_another_directory_are_something_else() -> None:
    assert len({said("{}"), said("{}", "refund"), said("{}", cwd="/a"), said("{}", cwd="/b")}) == 4


# ---------------------------------------------------------------- keys


def test_a_clients_key_is_its_own_in_its_run_and_no_other() -> None:
    places = {delivery_key(uid, run, "k", b"").place for uid in (0, 1) for run in (None, "r", "r2")}
    assert len(places) == 6
    assert delivery_key(0, "a\0b", "c", b"").place != delivery_key(0, "a", "b\0c", b"").place
    assert delivery_key(0, "a\1", "c", b"").place != delivery_key(0, "a\0", "c", b"").place


def test_with_a_clients_key_the_one_downstream_derives_from_it_and_from_what_is_asked() -> None:
    one = delivery_key(7, "r", "k" * 5_000, b"s").downstream
    assert one == delivery_key(7, "r", "k" * 5_000, b"s").downstream
    assert one != delivery_key(7, "r", "k" * 4_999, b"s").downstream
    assert one != delivery_key(7, "r", "k" * 5_000, b"other").downstream
    assert one.isalnum()
    assert len(one) <= 64


@pytest.mark.behaviour("M085")
def test_a_key_names_one_decision_for_good_and_another_decision_has_another() -> None:
    decision = ("tenant", "r_1", 3, 0, "pay", b"contract", b"arguments")
    others = [
        (*decision[:at], new, *decision[at + 1 :])
        for at, new in enumerate(("tenant2", "r_2", 4, 1, "refund", b"changed!", b"other"))
    ]
    keys = [idempotency_key(*one) for one in (decision, *others)]  # type: ignore[arg-type]  # one value of each kind
    assert keys[0] == idempotency_key(*decision)
    assert len(set(keys)) == 8
    assert all(key.isalnum() and len(key) <= 64 for key in keys)
    assert idempotency_key("t", "r", 1, 11, "x", b"", b"") != idempotency_key("t", "r", 11, 1, "x", b"", b"")


def test_the_same_form_is_no_repair_of_numbers() -> None:
    assert json.loads(same_form(parse('{"b": 1e400000, "a": 9007199254740993}'.replace("1e400000", "0.1")).values)) == {
        "a": 9007199254740993,
        "b": 0.1,
    }
