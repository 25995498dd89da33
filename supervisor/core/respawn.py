"""Whether a worker may be started now. Owns back-off, restart intensity and the breaker; starts and counts no workers.

Rules
1. Every end of a worker has one cause. Refill at once after all of them but two.
2. Start failures and idle deaths back off: the next start waits ``draw`` × min(cap, first × 2^n), n being how often
   that has happened since the last proof (full jitter; ``draw`` in 0…1 comes in). A start failure with no start granted
   since the last one is the same failure: it had begun before that one was known.
3. Crash, out of memory, protocol error, start failure and idle death count. More than ``class_ends`` of a class of
   workers within its window, or more than ``pool_ends`` of all classes within theirs, open a breaker.
4. Planned ends, deadline and cancel kills never count: one hung tool must not shut the pool. Nor do unconfirmed kills:
   they have a limit of their own, and the worker is not gone. Nor does a worker that crashed, ran out of memory or
   broke its link *while it served a call*: that is the tool's doing and counts against the tool (decision 0002).
5. While a breaker is open nothing starts and calls are to be refused as ``pool_unhealthy``. After ``probe_ms`` one
   probe may start. Ready: the breaker closes. Ended by something that counts: open again, for twice as long, up to the
   cap. No word of it for as long as the breaker was open: another probe.
6. A worker that has finished a call and lived ``proven_ms`` is the proof that resets the back-off, and the probe's wait
   once the breaker is closed.
7. The machine is total: each input means something, "stay" included, in each state.

`may_spawn` is a grant: True means that the caller starts a worker now. While it is False, `next_timer_ns` says when to
ask again. Settings in which the back-off and a limit could never both fire are refused.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, StrEnum, auto
from typing import TypeAlias

import msgspec

from protocol._deadlines import NS_PER_MS


class Cause(StrEnum):
    """Why a worker ended."""

    PLANNED = "planned"
    DEADLINE_KILL = "deadline_kill"
    CANCEL_KILL = "cancel_kill"
    CRASH = "crash"
    OOM = "oom"
    PROTOCOL_ERROR = "protocol_error"
    START_FAILURE = "start_failure"
    IDLE_DEATH = "idle_death"
    KILL_UNCONFIRMED = "kill_unconfirmed"


_BACKING_OFF = frozenset({Cause.START_FAILURE, Cause.IDLE_DEATH})
_COUNTED = _BACKING_OFF | {Cause.CRASH, Cause.OOM, Cause.PROTOCOL_ERROR}


class RespawnSettings(msgspec.Struct, frozen=True):
    """Times in ms. ``class_ends``, ``pool_ends``: how many ends are still bearable within ``…_window_ms``."""

    first_delay_ms: int = 100
    delay_cap_ms: int = 15_000
    class_ends: int = 5
    class_window_ms: int = 30_000
    pool_ends: int = 10
    pool_window_ms: int = 60_000
    probe_ms: int = 30_000
    probe_cap_ms: int = 300_000
    proven_ms: int = 30_000

    def delay_ms(self, failures: int) -> int:
        """The longest wait after so many failures (1 = the first)."""
        # The exponent is bounded before the power is taken: failures may go on for weeks.
        return min(self.delay_cap_ms, self.first_delay_ms << min(failures - 1, 32))


class Refill(msgspec.Struct, frozen=True):
    """A replacement may start at once."""


class Wait(msgspec.Struct, frozen=True):
    """No start before this instant."""

    until_ns: int


class Unhealthy(msgspec.Struct, frozen=True):
    """A breaker opened: refuse calls as ``pool_unhealthy``; the first probe may start at this instant."""

    probe_ns: int


class Healthy(msgspec.Struct, frozen=True):
    """The breakers are closed: accept calls."""


Effects: TypeAlias = tuple[Refill | Wait | Unhealthy | Healthy, ...]


class _State(Enum):
    CLOSED = auto()
    OPEN = auto()
    PROBING = auto()


class Breaker:
    """More than ``ends`` within a window open it. Each class of workers has one, and all classes together share one."""

    __slots__ = ("_ends", "_limit", "_open_for_ns", "_settings", "_state", "_until_ns", "_window_ns")

    def __init__(self, limit: int, window_ms: int, settings: RespawnSettings) -> None:
        self._limit, self._window_ns, self._settings = limit, window_ms * NS_PER_MS, settings
        self._ends: deque[int] = deque()
        self._state = _State.CLOSED
        self._until_ns = 0
        self._open_for_ns = 0

    @property
    def closed(self) -> bool:
        """Whether calls may be accepted."""
        return self._state is _State.CLOSED

    @property
    def blocked_until_ns(self) -> int | None:
        """When a start may be granted next; None while nothing stands in its way."""
        return None if self.closed else self._until_ns

    def count(self, now_ns: int) -> None:
        """A worker ended by something that counts."""
        if self._state is _State.OPEN:
            return
        self._ends.append(now_ns)
        while self._ends[0] <= now_ns - self._window_ns:
            self._ends.popleft()
        if self._state is _State.PROBING or len(self._ends) > self._limit:
            self._open(now_ns)

    def _open(self, now_ns: int) -> None:
        first, cap = self._settings.probe_ms * NS_PER_MS, self._settings.probe_cap_ms * NS_PER_MS
        self._open_for_ns = min(cap, 2 * self._open_for_ns or first)
        self._state, self._until_ns = _State.OPEN, now_ns + self._open_for_ns
        self._ends.clear()

    def started(self, now_ns: int) -> None:
        """A worker is started; while not closed, it is the probe."""
        if not self.closed:
            self._state, self._until_ns = _State.PROBING, now_ns + self._open_for_ns

    def ready(self) -> None:
        """A worker is ready. While open it was started before, and says nothing about a new one."""
        if self._state is _State.PROBING:
            self._state = _State.CLOSED

    def proven(self) -> None:
        """Rule 6."""
        if self.closed:
            self._open_for_ns = 0


class Respawn:
    """The machine of one class of workers (a flavour)."""

    def __init__(self, settings: RespawnSettings | None = None, pool: Breaker | None = None) -> None:
        """``pool``: the breaker all classes share (`pool_breaker`). Raises ValueError as `refuse_contradictions`."""
        settings = settings or RespawnSettings()
        refuse_contradictions(settings)
        self._settings = settings
        self._class = Breaker(settings.class_ends, settings.class_window_ms, settings)
        self._pool = pool or pool_breaker(settings)
        self._failures = 0
        self._not_before_ns = 0
        self._granted = True

    @property
    def healthy(self) -> bool:
        """Whether calls may be accepted for this class."""
        return self._class.closed and self._pool.closed

    def on_ended(
        self, cause: Cause, now_ns: int, draw: float, served: int = 0, lived_ns: int = 0, serving: bool = False
    ) -> Effects:
        """A worker ended, or never came to be. ``draw``: uniform in 0…1. ``served``: calls it finished in its life;
        ``serving``: it was at a call when it ended."""
        was_healthy = self.healthy
        if served:
            self._prove(lived_ns)
        if not serving and (cause is not Cause.START_FAILURE or self._granted):
            self._count(cause, now_ns, draw)
        return self._said(was_healthy, now_ns)

    def on_ready(self, now_ns: int) -> Effects:
        """A worker is ready to serve."""
        was_healthy = self.healthy
        self._class.ready()
        self._pool.ready()
        return self._said(was_healthy, now_ns)

    def on_finished(self, now_ns: int, lived_ns: int) -> Effects:
        """A worker has finished a call at this age."""
        self._prove(lived_ns)
        return self._said(self.healthy, now_ns)

    def may_spawn(self, now_ns: int) -> bool:
        """True: start a worker now (and, while a breaker is open, this one is the probe)."""
        if self._blocked_until_ns() > now_ns:
            return False
        self._granted = True
        self._class.started(now_ns)
        self._pool.started(now_ns)
        return True

    def next_timer_ns(self) -> int | None:
        """When to ask `may_spawn` again; None (or an instant that is past) when it would be granted now."""
        return self._blocked_until_ns() or None

    def _blocked_until_ns(self) -> int:
        return max(self._not_before_ns, self._class.blocked_until_ns or 0, self._pool.blocked_until_ns or 0)

    def _count(self, cause: Cause, now_ns: int, draw: float) -> None:
        if cause in _BACKING_OFF and self._granted:
            self._granted = False
            self._failures += 1
            self._not_before_ns = now_ns + int(draw * self._settings.delay_ms(self._failures) * NS_PER_MS)
        if cause in _COUNTED:
            self._class.count(now_ns)
            self._pool.count(now_ns)

    def _said(self, was_healthy: bool, now_ns: int) -> Effects:
        until_ns = self._blocked_until_ns()
        if self.healthy != was_healthy:
            return (Healthy(),) if self.healthy else (Unhealthy(until_ns),)
        return (Wait(until_ns),) if until_ns > now_ns else (Refill(),)

    def _prove(self, lived_ns: int) -> None:
        if lived_ns < self._settings.proven_ms * NS_PER_MS:
            return
        self._failures = 0
        self._class.proven()
        self._pool.proven()


def pool_breaker(settings: RespawnSettings) -> Breaker:
    """The breaker that all classes of workers share."""
    return Breaker(settings.pool_ends, settings.pool_window_ms, settings)


def refuse_contradictions(settings: RespawnSettings) -> None:
    """Raises ValueError for a number that is none, and for a back-off and a limit that could never both fire.

    A limit below 2 opens the breaker before the back-off has done anything. A limit whose ends, spaced by the longest
    back-offs, do not fit into its window never opens it, and a worker that cannot start is retried for ever.
    """
    for name in settings.__struct_fields__:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} = {getattr(settings, name)} is not allowed; allowed: at least 1")
    if settings.delay_cap_ms < settings.first_delay_ms or settings.probe_cap_ms < settings.probe_ms:
        raise ValueError("a cap is below the first value it caps: delay_cap_ms, probe_cap_ms")
    for ends, window in (("class_ends", "class_window_ms"), ("pool_ends", "pool_window_ms")):
        limit, window_ms = getattr(settings, ends), getattr(settings, window)
        longest_ms = sum(settings.delay_ms(failures) for failures in range(1, limit + 1))
        if limit < 2:
            raise ValueError(f"{ends} = {limit} opens the breaker before the back-off; allowed: at least 2")
        if longest_ms >= window_ms:
            raise ValueError(
                f"{ends} = {limit} can never be passed within {window} = {window_ms}: the back-off alone takes up to"
                f" {longest_ms} ms; allowed: a longer window, fewer ends or a lower delay_cap_ms"
            )
