"""The suites of many clients can fail: what they call wrong is wrong, and their witnesses see what is there."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest

from protocol._outcomes import CallResult, Delivery, Exit, KillReceipt, Reason, Status
from tests.trust import bad_clients, disorder, load, misdeeds, pipes
from tests.trust.disorder import KINDS, Kind, Place, Tried, tried, wrong_end
from tests.trust.lateness import CONFIRM_S, FACTOR, Pulse
from tests.trust.ledger import Asked


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "pipes").mkdir()
    return Place(tmp_path / "effects", tmp_path / "pipes")


def kind_of(what: str, way: str = "wait") -> Kind:
    return next(kind for kind in KINDS if (kind.what, kind.way) == (what, way))


def ended(status: Status, reason: Reason | None, delivery: Delivery, **more: object) -> CallResult:
    return CallResult("c", "t", status, reason=reason, delivery=delivery, **more)  # type: ignore[arg-type]  # its fields


DONE = ended(Status.OK, None, Delivery.SUCCEEDED)
FAILED = ended(Status.ERROR, None, Delivery.FAILED_DEFINITE)
LOST = ended(Status.CRASHED, Reason.WORKER_LOST, Delivery.UNKNOWN)


@pytest.mark.parametrize(
    ("what", "result", "done"),
    [
        ("nothing", DONE, 0),
        ("nothing", DONE, 2),
        ("nothing", ended(Status.NOT_EXECUTED, Reason.SPAWN_FAILED, Delivery.NOT_DELIVERED), 1),
        ("nothing", FAILED, 1),
        ("raises", FAILED, 0),
        ("raises", FAILED, 2),
        ("raises", DONE, 1),
        ("exits", LOST, 2),
        ("exits", DONE, 1),
        ("spins", DONE, 1),
        ("nothing", ended(Status.NOT_EXECUTED, Reason.BUDGET, Delivery.NOT_DELIVERED), 0),
    ],
)
def test_an_end_that_cannot_be_or_does_not_go_with_what_was_done_is_seen(
    place: Place, what: str, result: CallResult, done: int
) -> None:
    assert wrong_end(tried(kind_of(what), "n", place, random.Random(1)), result, done)


@pytest.mark.parametrize(
    ("what", "result", "done"),
    [
        ("nothing", DONE, 1),
        ("nothing", LOST, 0),
        ("raises", FAILED, 1),
        ("exits", LOST, 1),
        ("sleep 0.02", ended(Status.ERROR, None, Delivery.FAILED_DEFINITE, exit=Exit(signal="SIGKILL")), 0),
    ],
)
def test_what_may_be_is_not_called_wrong(place: Place, what: str, result: CallResult, done: int) -> None:
    assert not wrong_end(tried(kind_of(what), "n", place, random.Random(1)), result, done)


def test_every_misdeed_is_asked_for_by_some_kind_and_no_other_is() -> None:
    asked = {kind.what for kind in KINDS if not kind.is_script}
    assert asked == {*misdeeds.MISDEEDS, "unsayable"}


def test_a_third_of_the_calls_of_chaos_are_faults() -> None:
    shares = sum(kind.share for kind in KINDS)
    assert sum(kind.share for kind in KINDS if kind.fault) > shares / 3


def test_a_pipe_is_held_by_whoever_inherits_it_until_that_one_is_gone(tmp_path: Path) -> None:
    pipe = pipes.make(tmp_path / "pipe")
    assert not pipes.is_held(pipe)
    first = os.open(pipe, os.O_RDWR)
    second = os.dup(first)
    os.close(first)
    assert pipes.is_held(pipe)
    os.close(second)
    assert not pipes.is_held(pipe)


def test_an_answer_is_late_beyond_its_deadline_the_budget_and_what_this_machine_stood_still() -> None:
    pulse = Pulse()
    assert pulse.too_late(10.0, 500, 10.5 + CONFIRM_S) <= 0
    assert pulse.too_late(10.0, 500, 10.9 + CONFIRM_S) == pytest.approx(0.4)
    pulse._stood = [(9.0, 5.0), (10.2, 0.1), (99.0, 5.0)]
    assert pulse.too_late(10.0, 500, 10.9 + CONFIRM_S) == pytest.approx(0.4 - FACTOR * 0.1)


def asked(tool: str, result: CallResult | None, **arguments: int) -> Asked:
    told = None if result is None else msgspec.msgpack.encode(result)
    return Asked("n", tool, dict(arguments), effect=tool == "trust_effect", told=told)


OVERDUE = ended(Status.KILLED, Reason.TIME_BUDGET, Delivery.UNKNOWN)


@pytest.mark.parametrize(
    ("one", "done"),
    [
        (asked("trust_effect", None), 0),
        (asked("trust_effect", DONE), 2),
        (asked("trust_noop", LOST), 0),
        (asked("trust_sleep", DONE), 0),
    ],
)
def test_what_is_lost_doubled_crashed_or_ok_though_overdue_fails_the_load(one: Asked, done: int) -> None:
    assert load._wrong(one, done)


@pytest.mark.parametrize(
    ("one", "done"),
    [
        (asked("trust_effect", DONE), 1),
        (asked("trust_noop", DONE), 0),
        (asked("trust_sleep", OVERDUE), 0),
        (asked("trust_sleep", DONE, ms=5), 0),
    ],
)
def test_what_the_load_is_to_come_to_is_not_called_wrong(one: Asked, done: int) -> None:
    assert not load._wrong(one, done)


def test_every_bad_client_says_what_it_does() -> None:
    assert all(kind.__doc__ for kind in bad_clients.KINDS)
    assert len({kind.__name__ for kind in bad_clients.KINDS}) == len(bad_clients.KINDS)


def test_a_survivor_of_a_call_may_be_there_when_the_kill_is_not_confirmed_and_only_then() -> None:
    receipt = KillReceipt(["pidns"], 1, 0.1, None, confirmed=False)
    assert disorder.may_live(ended(Status.KILLED, Reason.TIME_BUDGET, Delivery.UNKNOWN, kill=receipt))
    assert not disorder.may_live(OVERDUE)
    assert not disorder.may_live(DONE)


def test_a_call_of_chaos_is_asked_for_under_its_name_and_holds_its_pipe(place: Place) -> None:
    one = tried(kind_of("exit 3"), "k0c0n1", place, random.Random(1))
    assert isinstance(one, Tried)
    assert str(one.pipe) in one.arguments["text"]
    assert one.name in one.arguments["text"]
