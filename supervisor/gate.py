"""Whether the daemon takes a new call: not while it stops, not while too many workers would not die, not for a flavour
whose workers cannot be started, not for a tool or a call in quarantine. Overload is `admission`'s word.
"""

from __future__ import annotations

from protocol._client_messages import QuarantineRow
from protocol._deadlines import remaining_ms
from protocol._outcomes import Reason
from supervisor.clock import now_ns
from supervisor.containment.pool import Pool
from supervisor.core.intake import Judged, Refusal
from supervisor.core.quarantine import QuarantineSettings
from supervisor.core.wards import row
from supervisor.leaks import Leaks
from supervisor.placement import Placement
from supervisor.trouble import Note, Trouble

_SHARE_IN_QUARANTINE = 4


class Gate:
    """Open until `close`."""

    def __init__(self, placement: Placement, settings: QuarantineSettings, note: Note) -> None:
        self._placement = placement
        self.trouble = Trouble(settings, note)
        self.leaks = Leaks(self.trouble, note)
        self.open = True

    def close(self) -> None:
        """The daemon is stopping."""
        self.open = False

    def check(self) -> None:
        """Raises Refusal while no call is taken."""
        if not self.open:
            raise Refusal(Reason.SHUTDOWN, "the daemon is stopping and accepts no new calls")
        if self.leaks.total and (why := self.too_many_leaks()):
            raise Refusal(Reason.POOL_UNHEALTHY, why)

    def check_call(self, judged: Judged) -> None:
        """Raises Refusal while its tool or its key is in quarantine, or its flavour's breaker is open; with a warm
        worker at hand there is no reason for the latter."""
        self.trouble.check(judged)
        pool = self._placement.pools[judged.flavour]
        if not pool.idle and not pool.healthy:
            raise Refusal(Reason.POOL_UNHEALTHY, pool.trouble() or "no worker can be started")

    def too_many_leaks(self) -> str | None:
        """Why no call is taken while a quarter of the slots that calls may have, at least one, are in quarantine."""
        quarantined = sum(pool.unconfirmed for pool in self._placement.pools.values())
        most = max(1, max(pool.settings.most for pool in self._placement.pools.values()) // _SHARE_IN_QUARANTINE)
        if quarantined < most:
            return None
        return (
            f"{quarantined} workers were killed and are not dead, which is all that may be (a quarter of the slots):"
            " new calls are refused until one is gone; see deadlined status"
        )

    def quarantine(self) -> list[QuarantineRow]:
        """Everything that is kept from running, and until when."""
        now = now_ns()
        wards = [row(ward, self.trouble.settings, now) for ward in self.trouble.wards()]
        pools = [_pool_row(pool, now) for pool in self._placement.pools.values() if not pool.healthy]
        return [*self.leaks.rows(), *pools, *wards]


def _pool_row(pool: Pool, now: int) -> QuarantineRow:
    until_ns = pool.blocked_until_ns
    left = None if until_ns is None else remaining_ms(until_ns, now)
    return QuarantineRow("pool", "breaker", pool.trouble() or "", left, flavour=pool.flavour)
