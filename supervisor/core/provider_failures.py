"""What a provider of models did wrong, from typed facts → the class of the error, which says what to do about it.

Rules
1. A fact is a status of HTTP, a kind of exception, a code of the provider's protocol. The message is for people: no
   digit and no word in it decides anything ("error 429 lines long" is no rate limit).
2. Worth another attempt: 408, 429, 529, every 5xx; reset, broken pipe, time-out, a network that fails, a pool that is
   exhausted, a stream that is empty or ends in the middle, an SDK that says there was no output.
3. Not: every other 4xx, a refused key, a spent quota (though it comes as 429), a content policy, and whatever is
   unknown: what nobody has understood is not repeated.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from protocol._outcomes import ErrorClass
from protocol._runs import ProviderReason
from supervisor.core.retry import DEFAULT, Answer, Backoff, RetrySettings


class FailureKind(StrEnum):
    """How an attempt to reach a model ended. The gateway says so; nobody reads it out of a text."""

    HTTP_STATUS = "http_status"
    RESET = "reset"
    BROKEN_PIPE = "broken_pipe"
    TIMEOUT = "timeout"
    NETWORK = "network"
    POOL_EXHAUSTED = "pool_exhausted"
    EMPTY_STREAM = "empty_stream"
    CUT_STREAM = "cut_stream"
    NO_OUTPUT = "no_output"
    QUOTA_SPENT = "quota_spent"
    CONTENT_POLICY = "content_policy"
    OTHER = "other"


class ProviderFailure(msgspec.Struct, frozen=True):
    """One failed attempt. ``status``: of an answer that had one. ``not_before_ns``: its Retry-After as an instant.
    ``begun``: it was told inside of an answer, and what was used before is not known."""

    kind: FailureKind
    status: int | None = None
    message: str = ""
    not_before_ns: int | None = None
    begun: bool = False


_PASSES = frozenset(
    (
        FailureKind.RESET,
        FailureKind.BROKEN_PIPE,
        FailureKind.TIMEOUT,
        FailureKind.NETWORK,
        FailureKind.POOL_EXHAUSTED,
        FailureKind.EMPTY_STREAM,
        FailureKind.CUT_STREAM,
        FailureKind.NO_OUTPUT,
    )
)
_NEVER_BEGAN = frozenset(
    (FailureKind.HTTP_STATUS, FailureKind.NETWORK, FailureKind.POOL_EXHAUSTED, FailureKind.QUOTA_SPENT)
)
_REASONS: dict[ErrorClass, ProviderReason] = {
    ErrorClass.TRANSIENT_PROVIDER: "transient_exhausted",
    ErrorClass.AUTH: "auth",
    ErrorClass.POLICY: "content_policy",
}
_PASSING_STATUSES = frozenset((408, 429))
_KEY_REFUSED = frozenset((401, 403))
_SERVER_ERRORS = range(500, 600)
"""529, overloaded, among them."""


def class_of(failure: ProviderFailure) -> ErrorClass:
    """Rules 2 and 3."""
    if failure.kind in _PASSES:
        return ErrorClass.TRANSIENT_PROVIDER
    if failure.kind is FailureKind.CONTENT_POLICY:
        return ErrorClass.POLICY
    if failure.kind is FailureKind.QUOTA_SPENT:
        return ErrorClass.AUTH
    return _class_of_status(failure.status or 0) if failure.kind is FailureKind.HTTP_STATUS else ErrorClass.BUG


def _class_of_status(status: int) -> ErrorClass:
    if status in _PASSING_STATUSES or status in _SERVER_ERRORS:
        return ErrorClass.TRANSIENT_PROVIDER
    return ErrorClass.AUTH if status in _KEY_REFUSED else ErrorClass.ARGUMENT


def costs_nothing(failure: ProviderFailure) -> bool:
    """Whether the model cannot have begun: it was refused, or never reached."""
    return failure.kind in _NEVER_BEGAN and not failure.begun


def give_up_reason(failure: ProviderFailure) -> ProviderReason:
    """The word for a run that ends for it, after as many attempts as it was worth."""
    if failure.kind is FailureKind.CUT_STREAM:
        return "stream_incomplete"
    if failure.kind is FailureKind.QUOTA_SPENT:
        return "permanent"
    return _REASONS.get(class_of(failure), "permanent")


def try_again(
    failure: ProviderFailure,
    retries: int,
    random_0_1: float,
    now_ns: int,
    deadline_ns: int,
    settings: RetrySettings = DEFAULT,
) -> Answer | None:
    """When to try again after ``retries`` retries, or why no more; None: this failure is not one that passes."""
    if class_of(failure) is not ErrorClass.TRANSIENT_PROVIDER:
        return None
    return Backoff(settings).next(retries, random_0_1, now_ns, deadline_ns, failure.not_before_ns)
