"""The ledger's nodes above runs: opens tenant, user and session for a run, remembers what they have used from one life
to the next. How much is allowed is `core/profiles`', whether there is enough `core/budget`'s."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from supervisor.clock import wall_ms
from supervisor.core.budget import Ledger, Level, Node
from supervisor.core.periods import Period, period_number
from supervisor.core.profiles import Budgets, Effective
from supervisor.journal import run_rows
from supervisor.journal.store import Change

MOST_SESSIONS = 20_000


class Accounts:
    """One per daemon."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.ledger = Ledger(wall_ms())
        self._used: dict[str, run_rows.AccountRow] = {}
        self._sessions: OrderedDict[Node, int] = OrderedDict()
        """How many runs of each go on; the ones used longest ago first."""
        self._session_of: dict[Node, Node] = {}
        """Of each run that goes on directly below one."""

    def recall(self, rows: list[run_rows.AccountRow]) -> None:
        """What earlier lives have used."""
        self._used.update((row.node, row) for row in rows)

    def spent_by_lost_run(self, uid: int, session: str | None, charges: list[run_rows.Charge]) -> list[Change]:
        """A run that died with its daemon had used so much by the log alone: those above it have used it too. What was
        told of them last has the charges up to some event in it; it stays the last while other lost runs are found."""
        changes = []
        tenant = self.budgets.tenant_of(uid)
        for node, period in _above(tenant.name, uid, session, tenant.period):
            number = period_number(period, wall_ms())
            known = self._used.get(str(node))
            before = known.used if known is not None and known.period == number else {}
            seq = 0 if known is None else known.seq or 0
            more = run_rows.total(charges, seq)
            used = {name: max(0, before.get(name, 0) + more.get(name, 0)) for name in {*before, *more}}
            row = self._used[str(node)] = run_rows.AccountRow(str(node), used, number, seq)
            changes.append(run_rows.used(row, wall_ms()))
        return changes

    def open_run(self, run: str, uid: int, session: str | None, parent: Node | None, effective: Effective) -> Node:
        """The node of a new run, below its session, its user and its tenant, or below another run."""
        node = Node(Level.RUN, run)
        above = parent if parent is not None else self._open_above(node, uid, session)
        self.ledger.open(node, above, effective.limits)
        if effective.wrapup.model_calls:
            self.ledger.hold_back(node, {"model_calls": effective.wrapup.model_calls})
        return node

    def revive_run(
        self, run: str, uid: int, session: str | None, parent: Node | None, dumped: Mapping[str, object]
    ) -> Node:
        """The node of a run that was suspended in an earlier life, as it was then."""
        node = Node(Level.RUN, run)
        above = parent if parent is not None else self._open_above(node, uid, session)
        self.ledger.load(node, above, dumped)
        return node

    def close_run(self, node: Node) -> None:
        """A run is over, and so are those below it."""
        self.ledger.close(node)
        session = self._session_of.pop(node, None)
        if session is not None:
            self._sessions[session] -= 1

    def keep_time(self) -> None:
        """Begin the periods that have begun, before anything is charged or told."""
        if self.ledger.periodic:
            self.ledger.on_time(wall_ms())

    def standing(self, uid: int, session: str | None) -> Iterator[Change]:
        """What tenant, user and session of a run have used now, for the disk."""
        self.keep_time()
        tenant = self.budgets.tenant_of(uid)
        for node, period in _above(tenant.name, uid, session, tenant.period):
            if node in self.ledger:
                used = self.ledger.dump(node)["used"]
                row = self._used[str(node)] = run_rows.AccountRow(str(node), used, period_number(period, wall_ms()))
                yield run_rows.used(row, wall_ms())

    def _open_above(self, run: Node, uid: int, session: str | None) -> Node:
        self.ledger.on_time(wall_ms())  # also without any account with a period: one may be opened here
        tenant = self.budgets.tenant_of(uid)
        limits = {Level.TENANT: tenant.limits, Level.USER: tenant.user_limits, Level.SESSION: tenant.session_limits}
        parent: Node | None = None
        for node, period in _above(tenant.name, uid, session, tenant.period):
            if node not in self.ledger:
                self.ledger.open(node, parent, limits[node.level], self._recalled(node, period), period)
            if node.level is Level.SESSION:
                self._sessions[node] = self._sessions.pop(node, 0) + 1
                self._session_of[run] = node
            parent = node
        assert parent is not None
        self._drop_sessions()
        return parent

    def _recalled(self, node: Node, period: Period) -> Mapping[str, int]:
        row = self._used.get(str(node))
        return row.used if row is not None and row.period == period_number(period, wall_ms()) else {}

    def _drop_sessions(self) -> None:
        """What the sessions used longest ago stand at is known (`standing`): their nodes need not be open."""
        while len(self._sessions) > MOST_SESSIONS:
            node, runs = next(iter(self._sessions.items()))
            if runs:
                return
            del self._sessions[node]
            self.ledger.close(node)


def _above(tenant: str, uid: int, session: str | None, period: Period) -> Iterator[tuple[Node, Period]]:
    yield Node(Level.TENANT, tenant), period
    yield Node(Level.USER, f"{tenant}/{uid}"), period
    if session is not None:
        yield Node(Level.SESSION, f"{uid}/{session}"), Period.NONE
