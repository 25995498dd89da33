"""From the last life to this one: open the journal, end what outlived its daemon, settle what that daemon did not.

In this order, because a call may be called over only when nothing of it can run any more. Blocking; before anything
else is started, and before anybody can ask.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol._events import EventKind
from supervisor.clock import now_ns, wall_ms
from supervisor.containment.strays import end_strays
from supervisor.journal import rows
from supervisor.journal.approval_rows import StoredApproval
from supervisor.journal.approval_rows import read as read_approvals
from supervisor.journal.chain import BrokenChain
from supervisor.journal.recovery import Clocks, Recovered, recover
from supervisor.journal.store import Change, Store, undamaged
from supervisor.lives import forget_strays, strays_of
from supervisor.run_recovery import RecoveredRuns, read_runs
from supervisor.runtime import StateDirectory


class Revival(NamedTuple):
    """An open journal, and what is known from it. ``alarm``: what a person must look at, if there is anything."""

    store: Store
    recovered: Recovered
    runs: RecoveredRuns
    alarm: str | None
    approvals: list[StoredApproval]


def revive(state: StateDirectory, result_ttl_ms: int) -> Revival:
    """Everything up to the point where a new daemon may start. Raises StoreError."""
    store = Store(state.journal)
    broken = store.open()
    with undamaged(store):
        return _read(store, broken, state.outputs, result_ttl_ms)


def _read(store: Store, broken: BrokenChain | None, outputs: str, result_ttl_ms: int) -> Revival:
    strays = end_strays(strays_of(store))
    forget_strays(store)
    recovered = recover(store, outputs, result_ttl_ms, Clocks(now_ns(), wall_ms()))
    if recovered.interrupted or strays:
        told = {"interrupted": recovered.interrupted, "strays": strays}
        store.commit([Change(event=rows.draft(EventKind.DAEMON_RECOVERED, wall_ms(), None, None, None, told))])
    alarm = None if broken is None else f"the journal was changed by somebody else: {broken.why}"
    return Revival(store, recovered, read_runs(store), alarm, list(read_approvals(store)))
