"""How the daemon is: what `deadlined status` says, and why it is degraded when it is."""

from __future__ import annotations

import os

from protocol import _client_messages as cm
from protocol._deadlines import elapsed_ms
from supervisor.calls import Calls
from supervisor.clock import now_ns
from supervisor.containment.killer import KillerLink
from supervisor.core.intake import Host
from supervisor.journal.journal import Journal
from supervisor.logs import LOG


class Health:
    """Gathers; decides nothing."""

    def __init__(
        self,
        calls: Calls,
        version: str,
        host: Host,
        why: list[str],
        frame_limit: int,
        killer: KillerLink,
        journal: Journal,
    ) -> None:
        self._calls, self._version = calls, version
        self._why, self._killer, self._journal = why, killer, journal
        self._born_ns = now_ns()
        self._host, self.frame_limit = host, frame_limit

    @property
    def containment(self) -> str:
        """The level that the daemon's own workers reach; known once they have been started."""
        return self._host.containment

    def status(self, request: int) -> cm.DaemonStatus:
        """The answer to AskStatus."""
        calls, pools = self._calls, list(self._calls.pools.values())
        quarantine = calls.gate.quarantine()
        return cm.DaemonStatus(
            request,
            os.getpid(),
            self._version,
            self.containment,
            self._why,
            elapsed_ms(self._born_ns, now_ns()),
            [*self._degraded(), *(row.text for row in quarantine)],
            sum(len(pool.alive) for pool in pools),
            sum(len(pool.idle) for pool in pools),
            sum(call.worker is not None for call in calls.live.values()),
            sum(call.worker is None for call in calls.live.values()),
            calls.settlement.settled,
            calls.settlement.kills,
            calls.gate.leaks.total,
            sum(pool.replacements for pool in pools),
            quarantine,
        )

    def _degraded(self) -> list[str]:
        wrong = [why for why in (self._journal.alarm, self._journal.trouble) if why is not None]
        if LOG.trouble is not None:
            wrong.append(LOG.trouble)
        if not self._killer.armed:
            wrong.append("no killer is armed: the second line holds the deadlines, nothing is dispatched")
        if why := self._calls.gate.too_many_leaks():
            wrong.append(why)
        return wrong
