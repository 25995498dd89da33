"""What a provider's own words about a failure are worth."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.provider_failures import FailureKind, ProviderFailure, class_of, costs_nothing
from supervisor.models import failures

S, NOW = 10**9, 5 * 10**9
WALL_MS = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT
WORDS = "error code type status innererror".split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=8,
)


def answered(status: int, error: Any) -> ProviderFailure:
    return failures.of_answer(status, json.dumps(error))


@pytest.mark.case("B127")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"error": {"code": "insufficient_quota", "message": "m"}}),
        (429, {"error": {"type": "insufficient_quota", "code": None}}),
        (400, {"type": "error", "error": {"type": "billing_error"}}),
        (402, {"detail": "pay"}),
    ],
)
def test_a_spent_quota_is_told_apart_by_its_code(status, error):
    failure = answered(status, error)
    assert (failure.kind, failure.status, class_of(failure)) == (FailureKind.QUOTA_SPENT, status, "auth")


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"code": "content_filter"}},
        {"error": {"code": 400, "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        {"error": {"type": "content_policy_violation"}},
    ],
)
def test_a_content_policy_is_told_apart_by_its_code(error):
    assert class_of(answered(400, error)) == "policy"


@pytest.mark.behaviour("M163")
@pytest.mark.parametrize("words", ["insufficient_quota", "content_filter", "error 503", "rate_limit_exceeded", "529"])
def test_no_word_of_a_message_decides_anything(words):
    assert answered(400, {"error": {"message": words}}).kind is FailureKind.HTTP_STATUS
    assert class_of(answered(400, {"error": words})) == "argument"
    assert failures.of_stream({"message": words}).kind is FailureKind.OTHER
    assert failures.of_stream(words).kind is FailureKind.OTHER


@pytest.mark.behaviour("M163")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "overloaded_error"}, "transient_provider"),
        ({"type": "api_error"}, "transient_provider"),
        ({"code": "rate_limit_exceeded", "type": "requests"}, "transient_provider"),
        ({"code": 502}, "transient_provider"),
        ({"code": "429", "type": "None"}, "transient_provider"),
        ({"code": "401"}, "auth"),
        ({"code": "server_error"}, "transient_provider"),
        ({"code": "insufficient_quota"}, "auth"),
        ({"type": "authentication_error"}, "auth"),
        ({"type": "invalid_request_error"}, "argument"),
        ({"code": "context_length_exceeded"}, "argument"),
        ({"code": "content_filter"}, "policy"),
        ({"code": "never heard of"}, "bug"),
        ({"code": 7}, "bug"),
    ],
)
def test_an_error_inside_of_a_stream_is_what_its_code_would_have_been_outside(error, expected):
    assert class_of(failures.of_stream(error)) == expected


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "insufficient_quota", "server_error"])
def test_a_refusal_costs_nothing_and_the_same_error_inside_of_an_answer_may_have_cost_something(code):
    assert costs_nothing(answered(429, {"error": {"code": code}}))
    assert not costs_nothing(failures.of_stream({"code": code}))


def test_a_message_is_kept_for_people():
    assert answered(500, {"error": {"message": " no \n"}}).message == "no"
    assert failures.of_answer(502, "<html>").message == "HTTP status 502"


@given(error=JSON, status=st.integers(400, 599))
def test_whatever_stands_in_a_body_it_is_a_failure(error, status):
    assert answered(status, error).status == status
    assert isinstance(failures.of_stream(error), ProviderFailure)


@pytest.mark.case("B124")
@pytest.mark.parametrize(
    ("header", "waits_ns"),
    [
        ("1", S),
        (" 3600 ", 3600 * S),
        ("0", 0),
        ("0.25", S // 4),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10 * S),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("9" * 15, 10**9 * S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 10**9 * S),
    ],
)
def test_a_wait_is_an_instant_from_seconds_or_from_a_date(header, waits_ns):
    assert failures.retry_after_ns(header, NOW, WALL_MS) == NOW + waits_ns


@pytest.mark.case("B124")
@pytest.mark.parametrize("header", [None, "", "soon", "-1", "1e9", "inf", "nan", "1 s", "٣", "2023-11-14", "9" * 400])
def test_a_wait_that_says_nothing_is_none(header):
    assert failures.retry_after_ns(header, NOW, WALL_MS) is None


@pytest.mark.case("B124")
@pytest.mark.parametrize("header", ["Tue Nov 14 22:13:30 2023", "Tuesday, 14-Nov-23 22:13:30 GMT"])
def test_the_older_dates_of_http_are_read_in_its_own_zone_wherever_the_daemon_is(header, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "EST5")
        time.tzset()
        assert failures.retry_after_ns(header, NOW, WALL_MS) == NOW + 10 * S
    time.tzset()


@given(st.text())
def test_no_header_breaks_the_reading(header):
    failures.retry_after_ns(header, NOW, WALL_MS)
