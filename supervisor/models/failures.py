"""What a provider says about a failure, in its words → the typed facts of `supervisor.core.provider_failures`. Pure.

Rules
1. Only codes and types decide, and a code that is a number, or a text of three digits, is a status. A message is for
   people. It is cut to `MOST_MESSAGE` by who takes the key out of it, which must come first.
2. A spent quota and a content policy are told apart from the status that they come with.
3. An error inside of a stream has no status: known words have the one that the provider would have answered. It is no
   refusal, though: the model may have begun.
4. Retry-After is a count of seconds or a date of HTTP, in UTC where it names no zone; anything else is none. It is an
   instant here, so that what was waited for is counted from when the answer came.
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

from supervisor.core.model_events import ModelError
from supervisor.core.provider_failures import FailureKind, ProviderFailure

MOST_MESSAGE = 500
_NS_PER_S, _NS_PER_MS = 1_000_000_000, 1_000_000
_MOST_S = 10**9
"""Thirty years: who asks for more asks for ever, and numbers stay numbers."""
_SECONDS = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_NUMBER = re.compile(r"[0-9]{3}")
_QUOTA = frozenset(("insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active"))
_POLICY = frozenset(("content_filter", "content_policy_violation", "responsibleaipolicyviolation"))
_PAYMENT_REQUIRED = 402
_STATUSES = range(400, 600)
_STATUS_OF = {
    "api_error": 500,
    "authentication_error": 401,
    "bad_gateway": 502,
    "context_length_exceeded": 400,
    "internal_error": 500,
    "internal_server_error": 500,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "not_found_error": 404,
    "overloaded": 529,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "requests": 429,
    "server_error": 500,
    "service_unavailable": 503,
    "timeout": 504,
    "timeout_error": 504,
    "tokens": 429,
}


def broken(kind: FailureKind, message: str) -> ModelError:
    """An attempt that failed without a word of the provider's."""
    return ModelError(ProviderFailure(kind, None, message))


def of_answer(status: int, body: str, not_before_ns: int | None = None) -> ProviderFailure:
    """An answer that is no stream of events. ``body``: what came with it, whatever that is."""
    said = _error_of(_parsed(body))
    kind = _kind(said) or (FailureKind.QUOTA_SPENT if status == _PAYMENT_REQUIRED else FailureKind.HTTP_STATUS)
    return ProviderFailure(kind, status, _message(said, f"HTTP status {status}"), not_before_ns)


def of_stream(said: Any) -> ProviderFailure:
    """An error that came as an event: what stands under ``error``."""
    error = said if isinstance(said, dict) else {"message": said}
    message = _message(error, "the provider reports an error in its stream")
    if (kind := _kind(error)) is not None:
        return ProviderFailure(kind, None, message, begun=True)
    status = next((found for word in _words(error) if (found := _status(word)) is not None), None)
    kind = FailureKind.OTHER if status is None else FailureKind.HTTP_STATUS
    return ProviderFailure(kind, status, message, begun=True)


def retry_after_ns(text: str | None, now_ns: int, wall_ms: int) -> int | None:
    """Rule 4: the instant; None: nothing was said that can be understood. ``wall_ms``: since 1970, now."""
    said = (text or "").strip()
    if _SECONDS.fullmatch(said):
        return now_ns + round(min(float(said), _MOST_S) * _NS_PER_S)
    try:
        until = parsedate_to_datetime(said)
        until_ms = timegm(until.utctimetuple()) * 1000
    except (ValueError, OverflowError):
        return None
    return now_ns + min(max(0, until_ms - wall_ms), _MOST_S * 1000) * _NS_PER_MS


def _parsed(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error_of(value: Any) -> dict[str, Any]:
    """The object with the facts, wherever a provider puts it."""
    if not isinstance(value, dict):
        return {}
    inner = value.get("error", value)
    return inner if isinstance(inner, dict) else {"message": inner}


def _words(error: dict[str, Any]) -> Iterator[str | int]:
    inner = error.get("innererror")
    for place in (error, inner if isinstance(inner, dict) else {}):
        for name in ("code", "type", "status"):
            word = place.get(name)
            if isinstance(word, str):
                yield int(word) if _NUMBER.fullmatch(word) else word.lower()
            elif isinstance(word, int):
                yield word


def _kind(error: dict[str, Any]) -> FailureKind | None:
    words = set(_words(error))
    if words & _QUOTA:
        return FailureKind.QUOTA_SPENT
    return FailureKind.CONTENT_POLICY if words & _POLICY else None


def _status(word: str | int) -> int | None:
    if isinstance(word, str):
        return _STATUS_OF.get(word)
    return word if word in _STATUSES else None


def _message(error: dict[str, Any], otherwise: str) -> str:
    said = error.get("message")
    return (said.strip() if isinstance(said, str) else "") or otherwise
