"""The ledger's nodes above runs: opens tenant, user and session for a run, remembers what they have used from one life
to the next. How much is allowed is `core/profiles`', whether there is enough `core/budget`'s.

Of sessions there may be one for each task. Those that no run goes on in are kept open up to a bound; what the others
have used only the disk knows, and it is looked up with the commit that admits their next run.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping

from supervisor.clock import wall_ms
from supervisor.core.budget import Ledger, Level, Node
from supervisor.core.periods import Period, period_number
from supervisor.core.profiles import Budgets, Effective
from supervisor.journal import run_rows
from supervisor.journal.store import Change

MOST_SESSIONS = 20_000
"""Open ones in which no run goes on, and as many that earlier lives have used."""


class Accounts:
    """One per daemon."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.ledger = Ledger(wall_ms())
        self._recalled: dict[str, run_rows.AccountRow] = {}
        """What earlier lives have used, until its node is opened."""
        self._complete = True
        """Whether a session that is neither open nor recalled has used nothing; else only the disk knows."""
        self._runs: Counter[Node] = Counter()
        """How many runs go on directly below each session."""
        self._idle: OrderedDict[Node, None] = OrderedDict()
        """Sessions in which none does; the ones used longest ago first."""
        self._session_of: dict[Node, Node] = {}
        """Of each run that goes on directly below one."""
        self._sought: set[Node] = set()
        """Open sessions of which the disk has not said yet what they had used."""

    def recall(self, rows: list[run_rows.AccountRow], complete: bool = True) -> None:
        """What earlier lives have used; not ``complete``: of the sessions used longest ago the disk alone knows it."""
        self._recalled.update((row.node, row) for row in rows)
        self._complete = self._complete and complete

    def spent_by_lost_run(self, uid: int, session: str | None, charges: list[run_rows.Charge]) -> list[Change]:
        """A run that died with its daemon had used so much by the log alone: those above it have used it too. What was
        told of them last has the charges up to some event in it; it stays the last while other lost runs are found."""
        changes = []
        tenant = self.budgets.tenant_of(uid)
        for node, period in _above(tenant.name, uid, session, tenant.period):
            number = period_number(period, wall_ms())
            known = self._recalled.get(str(node))
            before = known.used if known is not None and known.period == number else {}
            seq = 0 if known is None else known.seq or 0
            more = run_rows.total(charges, seq)
            used = {name: max(0, before.get(name, 0) + more.get(name, 0)) for name in {*before, *more}}
            row = self._recalled[str(node)] = run_rows.AccountRow(str(node), used, number, seq)
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
        self._sought.discard(above)  # all that is known of those with runs has been recalled
        self.ledger.load(node, above, dumped)
        return node

    def sought(self, run: Node) -> str | None:
        """The session of a new run, where the disk has to be asked what it has used; `found` has to follow."""
        session = self._session_of.get(run)
        return str(session) if session in self._sought else None

    def found(self, run: Node, rows: list[run_rows.AccountRow]) -> None:
        """What the disk has of that session, before anything of the run is charged."""
        session = self._session_of.get(run)
        if session is not None and session in self._sought:
            self._sought.discard(session)
            for row in rows:
                self.ledger.recall(session, row.used)

    def close_run(self, node: Node) -> None:
        """A run is over, and so are those below it."""
        self.ledger.close(node)
        session = self._session_of.pop(node, None)
        if session is not None:
            self._leave(session)

    def in_use(self) -> list[str]:
        """Sessions in which runs go on or wait: what they have used is not to be forgotten, however long they do."""
        return [str(node) for node in self._runs]

    def keep_time(self) -> None:
        """Begin the periods that have begun, before anything is charged or told."""
        if self.ledger.periodic:
            self.ledger.on_time(wall_ms())

    def standing(self, uid: int, session: str | None) -> Iterator[Change]:
        """What tenant, user and session of a run have used now, for the disk."""
        self.keep_time()
        tenant = self.budgets.tenant_of(uid)
        for node, period in _above(tenant.name, uid, session, tenant.period):
            if node in self.ledger and node not in self._sought:
                used = self.ledger.dump(node)["used"]
                row = run_rows.AccountRow(str(node), used, period_number(period, wall_ms()))
                yield run_rows.used(row, wall_ms())

    def _open_above(self, run: Node, uid: int, session: str | None) -> Node:
        self.ledger.on_time(wall_ms())  # also without any account with a period: one may be opened here
        tenant = self.budgets.tenant_of(uid)
        limits = {Level.TENANT: tenant.limits, Level.USER: tenant.user_limits, Level.SESSION: tenant.session_limits}
        parent: Node | None = None
        for node, period in _above(tenant.name, uid, session, tenant.period):
            if node not in self.ledger:
                self.ledger.open(node, parent, limits[node.level], self._used_before(node, period), period)
            if node.level is Level.SESSION:
                self._runs[node] += 1
                self._idle.pop(node, None)
                self._session_of[run] = node
            parent = node
        assert parent is not None
        return parent

    def _used_before(self, node: Node, period: Period) -> Mapping[str, int]:
        row = self._recalled.pop(str(node), None)
        if row is None and node.level is Level.SESSION and not self._complete:
            self._sought.add(node)
        return row.used if row is not None and row.period == period_number(period, wall_ms()) else {}

    def _leave(self, session: Node) -> None:
        self._runs[session] -= 1
        if self._runs[session]:
            return
        del self._runs[session]
        if session in self._sought:  # its run came to nothing before the disk could say
            self._sought.discard(session)
            self.ledger.close(session)
            return
        self._idle[session] = None
        while len(self._idle) > MOST_SESSIONS:
            oldest, _ = self._idle.popitem(last=False)
            self.ledger.close(oldest)
            self._complete = False


def session_of(uid: int, session: str | None) -> Node:
    """The node of a session of a user."""
    return Node(Level.SESSION, f"{uid}/{session}")


def _above(tenant: str, uid: int, session: str | None, period: Period) -> Iterator[tuple[Node, Period]]:
    yield Node(Level.TENANT, tenant), period
    yield Node(Level.USER, f"{tenant}/{uid}"), period
    if session is not None:
        yield session_of(uid, session), Period.NONE
