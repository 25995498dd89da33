"""Whether the daemon takes new calls at all: not while it stops, not while too many workers would not die, not for a
flavour whose workers cannot be started. Overload is `admission`'s word."""

from __future__ import annotations

from protocol._outcomes import Reason
from supervisor.core.intake import Refusal
from supervisor.placement import Placement

_SHARE_IN_QUARANTINE = 4


class Gate:
    """Open until `close`."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._open = True
        self.unconfirmed = 0
        """Deaths that the kernel did not confirm in time, ever."""

    def close(self) -> None:
        """The daemon is stopping."""
        self._open = False

    def check(self) -> None:
        """Raises Refusal while no call is taken."""
        if not self._open:
            raise Refusal(Reason.SHUTDOWN, "the daemon is stopping and accepts no new calls")
        if self.unconfirmed and (quarantined := self.quarantined()):
            most = sum(pool.settings.most for pool in self._placement.pools.values())
            if quarantined >= max(1, most // _SHARE_IN_QUARANTINE):
                text = f"{quarantined} workers could not be killed; see deadlined status"
                raise Refusal(Reason.POOL_UNHEALTHY, text)

    def check_flavour(self, flavour: str) -> None:
        """Raises Refusal while the flavour's breaker is open; with a warm worker at hand there is no reason to."""
        pool = self._placement.pools[flavour]
        if not pool.idle and not pool.healthy:
            raise Refusal(Reason.POOL_UNHEALTHY, pool.trouble() or "no worker can be started")

    def quarantined(self) -> int:
        """Workers that were killed and are not dead."""
        return sum(pool.unconfirmed for pool in self._placement.pools.values())
