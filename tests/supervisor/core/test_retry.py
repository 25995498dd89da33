"""The backoff, number by number, and which end of a call is worth another attempt."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from protocol import Contract, Delivery, ErrorClass, Reason, Status
from protocol._contracts import Retry
from supervisor.core.retry import (
    DEFAULT,
    DEMO,
    LEAST_LEFT_NS,
    Backoff,
    Delay,
    GiveUp,
    RetrySettings,
    Why,
    backoff_of,
    cause_of,
    worth_another,
)

MS = 1_000_000
FAR = 10**18
LEAST, EVEN, MOST = 0.0, 0.5, 1.0


def waits(settings: RetrySettings, random_0_1: float, deadline_ns: int = FAR) -> list[float]:
    """Every wait in milliseconds, until it gives up."""
    found: list[float] = []
    while isinstance(answer := Backoff(settings).next(len(found), random_0_1, 0, deadline_ns), Delay):
        found.append(answer.until_ns / MS)
    return found


@pytest.mark.behaviour("M043")
def test_after_two_retries_an_error_that_passes_is_taken_for_one_that_stays():
    assert [Backoff().next(retries, EVEN, 0, FAR) for retries in (0, 1, 2)] == [
        Delay(250 * MS),
        Delay(500 * MS),
        GiveUp(Why.ATTEMPTS_SPENT),
    ]


@pytest.mark.behaviour("M088")
@pytest.mark.parametrize(("random_0_1", "factor"), [(LEAST, 0.5), (EVEN, 1.0), (MOST, 1.5)])
def test_a_wait_doubles_up_to_four_seconds_and_varies_by_half(random_0_1, factor):
    many = RetrySettings(retries=8)
    plain = [250, 500, 1_000, 2_000, 4_000, 4_000, 4_000, 4_000]
    assert waits(many, random_0_1) == [min(4_000, wait * factor) for wait in plain]


@pytest.mark.behaviour("M164")
def test_the_demos_waits_begin_at_half_a_second_vary_by_a_quarter_and_stop_at_thirty():
    many = RetrySettings(9, DEMO.base_ms, DEMO.cap_ms, DEMO.jitter_low, DEMO.jitter_high)
    assert waits(many, EVEN) == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert waits(many, LEAST)[:2] == [375, 750]
    assert waits(many, MOST)[:2] == [625, 1_250]
    assert max(waits(many, MOST)) == 30_000
    assert len(waits(DEMO, EVEN)) == 3


@pytest.mark.behaviour("M164")
def test_a_herd_that_failed_together_does_not_come_back_together():
    draw = random.Random(7)
    backoff = Backoff(DEMO)
    buckets = [0] * 10
    for _ in range(1_000):
        at_ms = backoff.delay_ns(0, draw.random()) / MS
        buckets[int((at_ms - 375) / 25)] += 1
    assert max(buckets) < 200
    assert min(buckets) > 50


@pytest.mark.behaviour("M088")
def test_a_wait_that_would_reach_the_deadline_is_not_begun():
    backoff = Backoff()
    last_ns = 250 * MS + LEAST_LEFT_NS
    assert backoff.next(0, EVEN, 0, last_ns) == Delay(250 * MS)
    assert backoff.next(0, EVEN, 0, last_ns - 1) == GiveUp(Why.NO_TIME_LEFT)
    assert backoff.next(0, EVEN, 0, 0) == GiveUp(Why.NO_TIME_LEFT)
    assert backoff.next(0, EVEN, 10, 5) == GiveUp(Why.NO_TIME_LEFT)


def test_what_the_other_side_asked_to_wait_is_a_lower_bound_and_never_an_upper_one():
    backoff = Backoff()
    assert backoff.next(0, LEAST, 0, FAR, not_before_ns=9_000 * MS) == Delay(9_000 * MS)  # above the cap
    assert backoff.next(0, EVEN, 0, FAR, not_before_ns=1 * MS) == Delay(250 * MS)
    assert backoff.next(0, EVEN, 0, FAR, not_before_ns=0) == Delay(250 * MS)


@pytest.mark.case("B127")
def test_who_was_asked_to_wait_until_the_same_instant_does_not_meet_there():
    asked_ns, backoff = 1_000 * MS, Backoff()
    draws = [number / 100 for number in range(100)]
    back = [backoff.next(0, draw, 0, FAR, asked_ns) for draw in draws]
    assert back == [Delay(asked_ns + round(draw * 250 * MS)) for draw in draws]
    little = asked_ns + LEAST_LEFT_NS + 1
    assert backoff.next(0, MOST, 0, little, asked_ns) == Delay(asked_ns + 1), "as far as there is time"


def test_a_wait_asked_for_that_does_not_fit_fails_at_once():
    answer = Backoff().next(0, EVEN, 0, 10_000 * MS, not_before_ns=3_600_000 * MS)
    assert answer == GiveUp(Why.ASKED_TO_WAIT_TOO_LONG)


@given(
    settings=st.builds(
        lambda retries, base, more, low, span: RetrySettings(retries, base, base + more, low, low + span),
        st.integers(0, 10_000),
        st.integers(1, 60_000),
        st.integers(0, 600_000),
        st.floats(0.01, 2),
        st.floats(0, 2),
    ),
    retries=st.integers(0, 20_000),
    drawn=st.floats(0, 1),
    now_ns=st.integers(0, FAR),
    left_ns=st.integers(-FAR, FAR),
    asked_ns=st.none() | st.integers(0, 2 * FAR),
)
@hypothesis_settings(deadline=None)
def test_no_wait_is_longer_than_the_cap_unasked_or_ends_at_the_deadline(
    settings, retries, drawn, now_ns, left_ns, asked_ns
):
    answer = Backoff(settings).next(retries, drawn, now_ns, now_ns + left_ns, asked_ns)
    if isinstance(answer, Delay):
        assert retries < settings.retries
        assert now_ns <= answer.until_ns <= now_ns + left_ns - LEAST_LEFT_NS
        assert answer.until_ns <= max(now_ns, asked_ns or 0) + settings.cap_ms * MS
        assert answer.until_ns >= (asked_ns or 0)


@pytest.mark.case("B110")
def test_a_wait_depends_on_the_instant_it_began_at_and_on_no_clock():
    """The wall clock plays no part: all instants are the caller's, and the same ones give the same wait. (That the
    machines cannot read a clock at all is held by the import contract.)"""
    steps = (0, 3_600_000 * MS, -3_600_000 * MS)
    for step_ns in steps:
        now_ns = 10**16 + step_ns
        assert Backoff().next(0, EVEN, now_ns, now_ns + 1_000 * MS) == Delay(now_ns + 250 * MS)


@pytest.mark.parametrize(
    "bad",
    [
        {"retries": -1},
        {"base_ms": 0},
        {"base_ms": 5_000},
        {"jitter_low": 0.0},
        {"jitter_low": 2.0},
    ],
)
def test_settings_that_are_no_backoff_are_refused(bad):
    with pytest.raises(ValueError, match="a backoff needs"):
        RetrySettings(**bad)


# ---------------------------------------------------------------- calls

READ_ONLY = Contract(read_only=True)
WRITES = Contract()
IDEMPOTENT = Contract(idempotent=True)
EVERY_CAUSE = ("transient_tool", "worker_lost", "memory_limit")


def test_unless_its_contract_says_more_only_what_a_tool_calls_transient_is_tried_again():
    delivery = Delivery.FAILED_DEFINITE
    assert [worth_another(READ_ONLY, cause, delivery) for cause in EVERY_CAUSE] == [True, False, False]
    assert (READ_ONLY.retry.attempts, DEFAULT.retries) == (3, 2)


@pytest.mark.behaviour("M110")
@pytest.mark.parametrize("contract", [READ_ONLY, WRITES, IDEMPOTENT])
def test_what_may_have_done_something_is_repeated_only_where_that_does_no_harm(contract):
    harmless = contract is not WRITES
    assert worth_another(contract, "transient_tool", Delivery.NOT_DELIVERED)
    assert worth_another(contract, "transient_tool", Delivery.UNKNOWN) is harmless
    assert worth_another(contract, "transient_tool", Delivery.FAILED_DEFINITE) is harmless


@pytest.mark.behaviour("M113")
@pytest.mark.parametrize("attempts", range(1, 11))
def test_a_contracts_attempts_are_a_maximum_whatever_happens(attempts):
    contract = Contract(read_only=True, retry=Retry(attempts=attempts, on=EVERY_CAUSE))
    for causes in itertools.product(EVERY_CAUSE[:2], repeat=min(attempts, 3)):
        before = (*causes, *(["worker_lost"] * 10))[: attempts - 1]
        assert not worth_another(contract, "worker_lost", Delivery.NOT_DELIVERED, before)
    assert backoff_of(contract).next(attempts - 1, EVEN, 0, FAR) == GiveUp(Why.ATTEMPTS_SPENT)


@pytest.mark.case("B034")
def test_a_memory_kill_is_tried_again_once_if_its_contract_says_so_and_never_twice():
    contract = Contract(read_only=True, retry=Retry(attempts=3, on=EVERY_CAUSE))
    assert not worth_another(READ_ONLY, "memory_limit", Delivery.UNKNOWN)
    assert worth_another(contract, "memory_limit", Delivery.UNKNOWN)
    assert not worth_another(contract, "memory_limit", Delivery.UNKNOWN, ["memory_limit"])
    assert worth_another(contract, "memory_limit", Delivery.UNKNOWN, ["worker_lost"])


def test_a_contracts_waits_are_its_own():
    contract = Contract(retry=Retry(attempts=4, base_ms=100, cap_ms=250))
    found = [backoff_of(contract).next(retries, EVEN, 0, FAR) for retries in range(4)]
    assert found == [Delay(100 * MS), Delay(200 * MS), Delay(250 * MS), GiveUp(Why.ATTEMPTS_SPENT)]


@pytest.mark.behaviour("M044")
@pytest.mark.behaviour("M047")
@pytest.mark.behaviour("M112")
@pytest.mark.parametrize("word", [word for word in ErrorClass if word is not ErrorClass.TRANSIENT_TOOL])
def test_no_other_class_of_error_is_a_cause_to_try_again(word):
    assert cause_of(Status.ERROR, None, word) is None


@pytest.mark.parametrize("reason", [word for word in Reason if word not in ("worker_lost", "memory_limit")])
def test_no_other_reason_is_a_cause_to_try_again(reason):
    for status in Status:
        assert cause_of(status, reason, None) is None


def test_the_causes_are_the_words_of_a_contract():
    assert cause_of(Status.ERROR, None, "transient_tool") == "transient_tool"
    assert cause_of(Status.CRASHED, Reason.WORKER_LOST, None) == "worker_lost"
    assert cause_of(Status.KILLED, Reason.MEMORY_LIMIT, None) == "memory_limit"
    assert cause_of(Status.NOT_EXECUTED, Reason.SANDBOX_DENIED, "transient_tool") is None
