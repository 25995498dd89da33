"""The machine of one approval, cell by cell."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.approvals import (
    _TABLE,
    Answer,
    ApprovalMachine,
    Approve,
    Close,
    Effect,
    Input,
    Refuse,
    Reject,
    Start,
    State,
    TimeUp,
    Withdrawn,
    Write,
    Written,
)
from supervisor.core.checkpoints import Found, Obstacle

EXPIRES = 1_000
APPROVE, REJECT = Approve(7, 10, "fine"), Reject(8, 10, "no")
CANCEL, DURABLE, FAILED = Withdrawn(20, "cancelled"), Written(True), Written(False)
WAY: dict[State, tuple[Input, ...]] = {
    State.PENDING: (),
    State.APPROVED: (APPROVE,),
    State.CONSUMED: (APPROVE, DURABLE),
    State.REJECTED: (REJECT,),
    State.EXPIRED: (TimeUp(EXPIRES),),
    State.VOID: (CANCEL,),
}


def machine(state: State = State.PENDING) -> ApprovalMachine:
    made = ApprovalMachine(EXPIRES)
    for step in WAY[state]:
        made.on(step)
    assert made.state is state
    return made


def kinds(effects: tuple[Effect, ...]) -> list[type]:
    return [type(effect) for effect in effects]


def test_every_cell_is_written():
    assert set(_TABLE) == set(itertools.product(State, (Approve, Reject, TimeUp, Withdrawn, Written)))


CELLS: list[tuple[State, Input, list[type], State]] = [
    (State.PENDING, APPROVE, [Write], State.APPROVED),
    (State.PENDING, REJECT, [Close, Answer], State.REJECTED),
    (State.PENDING, TimeUp(EXPIRES), [Close], State.EXPIRED),
    (State.PENDING, TimeUp(EXPIRES - 1), [], State.PENDING),
    (State.PENDING, CANCEL, [Close], State.VOID),
    (State.PENDING, DURABLE, [], State.PENDING),
    (State.APPROVED, APPROVE, [Answer], State.APPROVED),
    (State.APPROVED, REJECT, [Refuse], State.APPROVED),
    (State.APPROVED, TimeUp(EXPIRES), [], State.APPROVED),
    (State.APPROVED, CANCEL, [], State.APPROVED),
    (State.APPROVED, DURABLE, [Start], State.CONSUMED),
    (State.APPROVED, FAILED, [Refuse], State.PENDING),
    (State.CONSUMED, APPROVE, [Answer], State.CONSUMED),
    (State.CONSUMED, REJECT, [Refuse], State.CONSUMED),
    (State.CONSUMED, TimeUp(EXPIRES), [], State.CONSUMED),
    (State.CONSUMED, CANCEL, [], State.CONSUMED),
    (State.CONSUMED, DURABLE, [], State.CONSUMED),
    (State.REJECTED, APPROVE, [Refuse], State.REJECTED),
    (State.REJECTED, REJECT, [Answer], State.REJECTED),
    (State.REJECTED, TimeUp(EXPIRES), [], State.REJECTED),
    (State.REJECTED, CANCEL, [], State.REJECTED),
    (State.REJECTED, DURABLE, [], State.REJECTED),
    (State.EXPIRED, APPROVE, [Refuse], State.EXPIRED),
    (State.EXPIRED, REJECT, [Refuse], State.EXPIRED),
    (State.EXPIRED, TimeUp(EXPIRES), [], State.EXPIRED),
    (State.EXPIRED, CANCEL, [], State.EXPIRED),
    (State.EXPIRED, DURABLE, [], State.EXPIRED),
    (State.VOID, APPROVE, [Refuse], State.VOID),
    (State.VOID, REJECT, [Refuse], State.VOID),
    (State.VOID, TimeUp(EXPIRES), [], State.VOID),
    (State.VOID, CANCEL, [], State.VOID),
    (State.VOID, DURABLE, [], State.VOID),
]


@pytest.mark.parametrize(("state", "given_", "effects", "then"), CELLS)
def test_a_cell_does_what_the_rules_say(state, given_, effects, then):
    made = machine(state)
    assert kinds(made.on(given_)) == effects
    assert made.state is then


def test_every_cell_is_tried():
    assert {(state, type(given_)) for state, given_, _, _ in CELLS} == set(_TABLE)


def refusal(effects: tuple[Effect, ...]) -> str:
    (code,) = [effect.code for effect in effects if isinstance(effect, Refuse | Close)]
    return code


@pytest.mark.parametrize("answer", [Approve(7, EXPIRES), Reject(7, EXPIRES)])
def test_an_answer_at_its_time_is_too_late_whoever_looked_at_the_clock(answer):
    made = machine()
    effects = made.on(answer)
    assert (kinds(effects), refusal(effects), made.state) == ([Close], "approval_expired", State.EXPIRED)
    assert machine().on(type(answer)(7, EXPIRES - 1)) != effects


@pytest.mark.parametrize(
    ("obstacle", "code"),
    [
        (Obstacle.MISMATCH, "approval_mismatch"),
        (Obstacle.STRICTER, "policy_changed"),
        (Obstacle.DENIED, "policy_denied"),
        (Obstacle.EXHAUSTED, "budget_exhausted"),
    ],
)
def test_an_obstacle_makes_an_approval_void_and_nothing_runs(obstacle, code):
    made = machine()
    given_ = Approve(7, 10, found=Found(obstacle, "why"))
    told = made.on(given_)
    assert told == (Close(State.VOID, "why", obstacle, code=code),)
    assert made.state is State.VOID
    assert refusal(made.on(APPROVE)) == "approval_void"


@pytest.mark.parametrize("state", [State.EXPIRED, State.VOID])
def test_an_answer_that_comes_too_late_hears_why(state):
    assert refusal(machine(state).on(APPROVE)) == f"approval_{state}"
    assert refusal(machine(State.REJECTED).on(APPROVE)) == "approval_rejected"


def test_what_was_decided_can_be_read():
    made = ApprovalMachine(EXPIRES)
    made.on(Approve(7, 10, "fine", "tool", edited=True))
    assert (made.decided_by, made.decided_at_ms, made.note, made.scope, made.version) == (7, 10, "fine", "tool", 2)
    made.on(FAILED)
    assert (made.decided_by, made.decided_at_ms, made.note, made.scope, made.version) == (None, None, "", "call", 1)


def test_a_cancel_during_the_commit_ends_the_call_at_once():
    made = machine(State.APPROVED)
    made.on(CANCEL)
    (start,) = made.on(DURABLE)
    assert isinstance(start, Start)
    assert start.cancelled
    (plain,) = machine(State.APPROVED).on(DURABLE)
    assert isinstance(plain, Start)
    assert not plain.cancelled


def test_a_cancel_during_a_commit_that_fails_leaves_nothing_to_approve():
    made = machine(State.APPROVED)
    made.on(CANCEL)
    assert kinds(made.on(FAILED)) == [Close, Refuse]
    assert made.state is State.VOID


def test_a_rejection_says_whether_the_run_goes_on():
    close, _ = machine().on(Reject(7, 10, then="stop"))
    assert isinstance(close, Close)
    assert close.then == "stop"


STEPS: dict[str, Callable[[int], Input]] = {
    "approve": lambda now: Approve(7, now),
    "blocked": lambda now: Approve(7, now, found=Found(Obstacle.MISMATCH, "x")),
    "reject": lambda now: Reject(7, now),
    "clock": TimeUp,
    "cancel": lambda now: Withdrawn(now, "cancelled"),
    "durable": lambda _: Written(True),
    "failed": lambda _: Written(False),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2 * EXPIRES)), max_size=30))
def test_however_it_goes_one_call_starts_at_most_and_no_ending_is_taken_back(steps):
    made, started, closed, ended = ApprovalMachine(EXPIRES), 0, 0, False
    for name, now in steps:
        before = made.state
        effects = made.on(STEPS[name](now))
        started += kinds(effects).count(Start)
        closed += kinds(effects).count(Close)
        assert not ended or made.state is before
        ended = made.state not in (State.PENDING, State.APPROVED)
        if name in ("approve", "blocked", "reject"):
            told = [one for one in effects if isinstance(one, Write | Answer | Refuse) or getattr(one, "code", "")]
            assert told, "whoever answers hears something"
        if Write in kinds(effects):
            assert before is State.PENDING
            assert now < EXPIRES
    assert started + closed <= 1
    assert (started + closed == 1) is ended
