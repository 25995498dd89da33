"""Whether something that failed is tried again, and when. Owns the backoff of models and of tools, and which end of a
call is worth another attempt. Sleeps for nobody: `supervisor/retries.py` does, and the loop that calls models.

Rules
1. The i-th delay (from 0) is ``min(cap, base * 2**i)``, times the jitter, and never more than the cap.
2. What the other side asked to wait is a lower bound, whatever the cap is: to come back before is to be refused again.
   What the jitter adds to the shortest delay is added to it too, as far as there is time: else all who were asked to
   wait until the same instant would meet there again.
3. A delay that leaves less than `LEAST_LEFT_NS` before the deadline is not begun: it fails now, with the error that
   was, and not at the deadline with another one.
4. Of a call's ends only those that its contract names are tried again, and only where a second run can do no harm: it
   was not delivered, it is read-only, or what it does downstream happens once however often it is asked for
   (`idempotent`). What a tool says of arguments, policy or its command's exit is never among them. One that was killed
   or lost and has an `after_kill` is told, not tried again: that hook belongs to the end of a call.
5. A call that was killed for memory is tried again once at most, whatever its contract allows: it needs what it needs.
6. An instant and a random number come in. There is no clock and no state here: the same inputs give the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from protocol._contracts import Contract, RetryCause
from protocol._deadlines import NS_PER_MS
from protocol._outcomes import Delivery, ErrorClass, Reason, Status

LEAST_LEFT_NS = 10 * NS_PER_MS
"""Less is no useful time: a warm worker takes a millisecond to be given a call, and the tool wants some too."""
_MOST_DOUBLINGS = 62
_AGAIN_FOR_MEMORY = 1


class RetrySettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``retries``: after the first attempt. Times in milliseconds; the jitter is a factor between two bounds.

    Raises ValueError for what would be no backoff.
    """

    retries: int = 2
    base_ms: int = 250
    cap_ms: int = 4_000
    jitter_low: float = 0.5
    jitter_high: float = 1.5

    def __post_init__(self) -> None:
        if self.retries < 0 or not 1 <= self.base_ms <= self.cap_ms:
            raise ValueError("a backoff needs retries of at least 0 and 1 <= base_ms <= cap_ms")
        if not 0 < self.jitter_low <= self.jitter_high:
            raise ValueError("a backoff needs 0 < jitter_low <= jitter_high: without a wait it is a storm")


DEFAULT = RetrySettings()
DEMO = RetrySettings(3, 500, 30_000, 0.75, 1.25)


def of_profile(profile: str) -> RetrySettings:
    """How often and when a model is asked again in a run of that profile."""
    return DEMO if profile == "demo" else DEFAULT


class Why(StrEnum):
    """Why there is no further attempt."""

    ATTEMPTS_SPENT = "attempts_spent"
    NO_TIME_LEFT = "no_time_left"
    ASKED_TO_WAIT_TOO_LONG = "asked_to_wait_too_long"


class Delay(msgspec.Struct, frozen=True, gc=False):
    """Wait until ``until_ns``."""

    until_ns: int


class GiveUp(msgspec.Struct, frozen=True, gc=False):
    """Fail now."""

    why: Why


Answer: TypeAlias = Delay | GiveUp


class Backoff:
    """The waits of one kind of call."""

    __slots__ = ("_settings",)

    def __init__(self, settings: RetrySettings = DEFAULT) -> None:
        self._settings = settings

    def next(
        self, retries: int, random_0_1: float, now_ns: int, deadline_ns: int, not_before_ns: int | None = None
    ) -> Answer:
        """What to do about a failure that is worth another attempt. ``retries``: how many there have been, from 0.
        ``random_0_1``: even between 0 and 1. ``not_before_ns``: until when the other side asked to wait (Retry-After).
        """
        if retries >= self._settings.retries:
            return GiveUp(Why.ATTEMPTS_SPENT)
        latest_ns = deadline_ns - LEAST_LEFT_NS
        if not_before_ns is not None and not_before_ns > latest_ns:
            return GiveUp(Why.ASKED_TO_WAIT_TOO_LONG)
        delay_ns = self.delay_ns(retries, random_0_1)
        until_ns = now_ns + delay_ns
        if not_before_ns is not None:
            spread_ns = delay_ns - self.delay_ns(retries, 0)
            until_ns = max(until_ns, min(not_before_ns + spread_ns, latest_ns))
        return GiveUp(Why.NO_TIME_LEFT) if until_ns > latest_ns else Delay(until_ns)

    def delay_ns(self, retries: int, random_0_1: float) -> int:
        """Rule 1, in nanoseconds."""
        settings = self._settings
        plain_ms = min(settings.cap_ms, settings.base_ms << min(retries, _MOST_DOUBLINGS))
        factor = settings.jitter_low + (settings.jitter_high - settings.jitter_low) * random_0_1
        return round(min(settings.cap_ms, plain_ms * factor) * NS_PER_MS)


# ---------------------------------------------------------------- calls of tools


def worth_another(contract: Contract, cause: RetryCause, delivery: Delivery, before: Sequence[RetryCause] = ()) -> bool:
    """Rules 4 and 5: whether an end for ``cause`` may be tried again, after retries for what is in ``before``."""
    retry = contract.retry
    if cause not in retry.on or len(before) >= retry.attempts - 1:
        return False
    if contract.after_kill is not None and cause != "transient_tool":
        return False
    if cause == "memory_limit" and before.count(cause) >= _AGAIN_FOR_MEMORY:
        return False
    return contract.read_only or contract.idempotent or delivery is Delivery.NOT_DELIVERED


def backoff_of(contract: Contract) -> Backoff:
    """The waits between attempts of a call of this contract."""
    retry = contract.retry
    return Backoff(RetrySettings(retry.attempts - 1, retry.base_ms, retry.cap_ms))


def cause_of(status: Status, reason: Reason | None, error_class: str | None) -> RetryCause | None:
    """The one word for an end that a contract may want tried again, from typed facts alone; None for every other."""
    if status is Status.ERROR and error_class == ErrorClass.TRANSIENT_TOOL:
        return "transient_tool"
    if reason is Reason.WORKER_LOST:
        return "worker_lost"
    return "memory_limit" if reason is Reason.MEMORY_LIMIT else None
