"""What of a provider's failures passes, by typed facts alone."""

from __future__ import annotations

import pytest

from protocol import ErrorClass
from supervisor.core.provider_failures import FailureKind, ProviderFailure, class_of, try_again
from supervisor.core.retry import DEMO, Delay, GiveUp, Why

MS = 1_000_000
FAR = 10**18
PASSES = ErrorClass.TRANSIENT_PROVIDER


def status(number: int) -> ProviderFailure:
    return ProviderFailure(FailureKind.HTTP_STATUS, number)


@pytest.mark.behaviour("M163")
@pytest.mark.behaviour("M087")
@pytest.mark.behaviour("M111")
@pytest.mark.parametrize("number", range(300, 600))
def test_408_429_529_and_every_5xx_pass_and_no_other_status_does(number):
    passes = number in (408, 429) or number >= 500
    assert (class_of(status(number)) is PASSES) is passes
    assert (try_again(status(number), 0, 0.5, 0, FAR) is not None) is passes


@pytest.mark.behaviour("M163")
@pytest.mark.behaviour("M087")
@pytest.mark.behaviour("M111")
@pytest.mark.parametrize(
    "kind", ["reset", "broken_pipe", "timeout", "network", "pool_exhausted", "empty_stream", "cut_stream", "no_output"]
)
def test_what_happens_to_connections_and_streams_passes(kind):
    failure = ProviderFailure(FailureKind(kind))
    assert class_of(failure) is PASSES
    assert try_again(failure, 0, 0.5, 0, FAR) == Delay(250 * MS)


@pytest.mark.behaviour("M087")
@pytest.mark.behaviour("M112")
@pytest.mark.behaviour("M163")
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (status(400), "argument"),
        (status(404), "argument"),
        (status(422), "argument"),
        (status(401), "auth"),
        (status(403), "auth"),
        (ProviderFailure(FailureKind.CONTENT_POLICY, 400), "policy"),
        (ProviderFailure(FailureKind.QUOTA_SPENT, 429), "auth"),
        (ProviderFailure(FailureKind.OTHER), "bug"),
    ],
)
def test_what_another_attempt_cannot_change_is_said_by_its_class_and_not_repeated(failure, expected):
    assert class_of(failure) == expected
    assert try_again(failure, 0, 0.5, 0, FAR) is None


@pytest.mark.behaviour("M163")
@pytest.mark.parametrize("message", ["429 Too Many Requests", "error 503", "timeout", "ECONNRESET", "529"])
def test_digits_and_words_in_a_message_decide_nothing(message):
    assert class_of(ProviderFailure(FailureKind.HTTP_STATUS, 400, message)) is ErrorClass.ARGUMENT
    assert class_of(ProviderFailure(FailureKind.OTHER, None, message)) is ErrorClass.BUG
    assert try_again(ProviderFailure(FailureKind.OTHER, None, message), 0, 0.5, 0, FAR) is None
    assert class_of(ProviderFailure(FailureKind.HTTP_STATUS, 503, "400 bad request")) is PASSES


@pytest.mark.behaviour("M167")
@pytest.mark.parametrize(("drawn", "waits"), [(0.0, (375, 750)), (0.5, (500, 1_000)), (1.0, (625, 1_250))])
def test_two_429s_wait_about_half_a_second_and_a_second_under_the_demos_settings(drawn, waits):
    """And the third attempt is made: whoever follows the answers is back when the provider is."""
    provider = iter((status(429), status(429), None))
    now_ns, waited = 5_000 * MS, []
    while (failure := next(provider)) is not None:
        answer = try_again(failure, len(waited), drawn, now_ns, FAR, DEMO)
        assert isinstance(answer, Delay)
        waited.append((answer.until_ns - now_ns) / MS)
        now_ns = answer.until_ns
    assert tuple(waited) == waits


def test_a_provider_is_tried_again_three_times_at_most_under_the_demos_settings():
    answers = [try_again(status(503), retries, 0.5, 0, FAR, DEMO) for retries in range(4)]
    assert [isinstance(answer, Delay) for answer in answers] == [True, True, True, False]
    assert answers[-1] == GiveUp(Why.ATTEMPTS_SPENT)


def test_a_retry_after_that_does_not_fit_before_the_deadline_stops_at_once():
    failure = ProviderFailure(FailureKind.HTTP_STATUS, 429, not_before_ns=11_000 * MS)
    assert try_again(failure, 0, 0, 0, 20_000 * MS) == Delay(11_000 * MS)
    assert try_again(failure, 0, 0.5, 0, 10_000 * MS) == GiveUp(Why.ASKED_TO_WAIT_TOO_LONG)
