"""What tenants, users, sessions and runs may use and have used. Every change of a budget is in this file; how limits
come about is `profiles`', what tokens cost is `prices`', a run's time (``wall_ms``) is its deadline's.

Rules
1. Nodes form a tree: tenant → user → session → run → sub-run. Whatever is asked of a node is asked of it and of every
   node above it: it is granted by all of them or changes none. So a child only narrows.
2. A limit of N grants exactly N. What is used, reserved, held back and asked for together may not exceed it. None
   grants everything, 0 nothing. Asking for 0 is granted unless there is debt (rule 5).
3. The refusal names the first node that cannot grant it, from the one asked upwards, and its first such dimension in
   the order in which they were asked for.
4. A reservation ends once: settled or released, whichever comes first; the other is told no. Released: everything is
   as if it had never been. Settled: what is reported is used; a dimension that is not reported was used as reserved.
5. What is reported may be more than was reserved, and what is not foreseeable is spent unasked. Both may exceed a
   limit: that is debt, and the next that asks for that dimension is refused.
6. ``branches`` is a gauge: reserved while a call runs and never used, however its reservation ends.
7. What is held back for a wrap-up is inside the limit, and refused to all until the wrap-up is opened. From then on
   there is so much of it and no more, whatever else is left, and where there is no limit too.
8. A tenant's or a user's account may have a period: when a new one begins, what was used is forgotten and what is
   reserved stays. A clock that steps back begins nothing.
9. A node closes when it has no children. Nothing of it stays; a reservation that is still out reaches the nodes above
   all the same.
10. A dumped node has spent its reservations: who loads it has lost them. Loading says nothing to the nodes above.
11. What is set ``aside`` is bound like any reservation, and in no dump until it is announced: an account says what the
    log says. So does no dump have the byte of output that a call in flight has reserved, which the log never has.

One operation costs the depth of the tree times the dimensions asked for, however much was used before.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from protocol._budgets import BudgetRecord, Dimension, DimensionView, tool_calls_of
from protocol._deadlines import remaining_ms
from supervisor.core.periods import Period, period_number

Amounts: TypeAlias = Mapping[str, int]
_TOOL_CALLS, _BRANCHES, _OUTPUT_BYTES = (
    Dimension.TOOL_CALLS.value,
    Dimension.BRANCHES.value,
    Dimension.OUTPUT_BYTES.value,
)
"""As plain text, which a dictionary finds faster; every call passes here."""
_NEVER_SAID = (_BRANCHES, _OUTPUT_BYTES)
"""What is only reserved: the log does not have it."""
_VIEWED = tuple(dimension for dimension in Dimension if dimension is not Dimension.WALL_MS)


class Level(StrEnum):
    """How high a node stands. Sub-runs are runs. Hashed as the text that it is: nodes are looked up per call, and the
    hash of Enum is a Python function."""

    __hash__ = str.__hash__

    TENANT = "tenant"
    USER = "user"
    SESSION = "session"
    RUN = "run"


class Node(NamedTuple):
    """The name of a node."""

    level: Level
    name: str

    def __str__(self) -> str:
        return f"{self.level} {self.name}"


class Refused(msgspec.Struct, frozen=True):
    """A node that cannot grant what was asked. ``held``: what it keeps back for a wrap-up."""

    node: Node
    dimension: str
    limit: int
    used: int
    reserved: int
    asked: int
    held: int = 0

    @property
    def text(self) -> str:
        """A sentence for people."""
        also = "".join(f", {n} {word}" for n, word in ((self.reserved, "reserved"), (self.held, "held back")) if n)
        return f"{self.dimension}: {self.used} of {self.limit} used{also}, {self.asked} asked for ({self.node})"


class _Account(msgspec.Struct, eq=False):
    node: Node
    limits: dict[str, int]
    """Those that are limits."""
    used: dict[str, int]
    period: Period
    number: int
    """Which period ``used`` is of."""
    caps: dict[str, int]
    """The limits, but for what an opened wrap-up narrows."""
    reserved: dict[str, int] = {}
    aside: dict[str, int] = {}
    """Of what is reserved, that which nobody has announced."""
    held: dict[str, int] = {}
    children: int = 0

    def refusal(self, amounts: Amounts) -> Refused | None:
        for dimension, asked in amounts.items():
            limit = self.caps.get(dimension)
            if limit is None:
                continue
            used, reserved = self.used.get(dimension, 0), self.reserved.get(dimension, 0)
            held = self.held.get(dimension, 0) if asked else 0
            if used + reserved + held + asked > limit:
                return Refused(self.node, str(dimension), limit, used, reserved, asked, held)
        return None

    def taken(self, dimension: str) -> int:
        return self.used.get(dimension, 0) + self.reserved.get(dimension, 0)

    def open_wrap_up(self) -> dict[str, int]:
        held, self.held = self.held, {}
        narrowed = {name: self.taken(name) + n for name, n in held.items()}
        self.caps = {**self.caps, **{name: min(cap, self.caps.get(name, cap)) for name, cap in narrowed.items()}}
        return held


class Reservation(msgspec.Struct, eq=False):
    """What was granted and has not ended, or has. Only its ledger ends it."""

    node: Node
    amounts: dict[str, int]
    _path: tuple[_Account, ...]
    _open: bool = True
    _aside: bool = False

    @property
    def open(self) -> bool:
        """Whether it still binds what it asked for."""
        return self._open


class Ledger:
    """Every account of a daemon. ``wall_ms``: the wall clock, milliseconds since 1970; only periods look at it."""

    def __init__(self, wall_ms: int = 0) -> None:
        self._paths: dict[Node, tuple[_Account, ...]] = {}
        """Of each node its account, and those above it, upwards."""
        self._periodic: dict[Node, _Account] = {}
        self._wall_ms = wall_ms

    def __contains__(self, node: object) -> bool:
        return node in self._paths

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def periodic(self) -> bool:
        """Whether any account has a period: without one there is nothing for `on_time` to begin."""
        return bool(self._periodic)

    # ------------------------------------------------------------ nodes

    def open(
        self,
        node: Node,
        parent: Node | None,
        limits: Mapping[str, int | None],
        used: Amounts | None = None,
        period: Period = Period.NONE,
    ) -> None:
        """A new node. ``used``: what it has used in this period before it was known here; those above are not told.

        Raises ValueError for a node that is open, and for a parent that is not.
        """
        if node in self._paths:
            raise ValueError(f"{node} is open")
        above = () if parent is None else self._path(parent)
        real = {name: limit for name, limit in limits.items() if limit is not None}
        account = _Account(node, real, dict(used or {}), period, period_number(period, self._wall_ms), real)
        self._paths[node] = (account, *above)
        for direct in above[:1]:
            direct.children += 1
        if period is not Period.NONE:
            self._periodic[node] = account

    def close(self, node: Node) -> None:
        """Rule 9. Raises ValueError for a node that is not open or has children."""
        account, *above = self._path(node)
        if account.children:
            raise ValueError(f"{node} has {account.children} open below it")
        del self._paths[node]
        self._periodic.pop(node, None)
        for direct in above[:1]:
            direct.children -= 1

    def on_time(self, wall_ms: int) -> None:
        """Rule 8, with what the wall clock says now."""
        self._wall_ms = max(wall_ms, self._wall_ms)
        for account in self._periodic.values():
            number = period_number(account.period, wall_ms)
            if number > account.number:
                account.used.clear()
                account.number = number

    def dump(self, node: Node) -> dict[str, Any]:
        """A node as plain values for `load`."""
        account = self._account(node)
        announced = {name: n - account.aside.get(name, 0) for name, n in account.reserved.items()}
        spent = {name: n for name, n in announced.items() if n and name not in _NEVER_SAID}
        used = _sum(account.used, spent)
        return {"limits": dict(account.limits), "used": used, "held": dict(account.held), "caps": dict(account.caps)}

    def load(self, node: Node, parent: Node | None, dumped: Mapping[str, Any]) -> None:
        """Open a node as it was dumped. Raises ValueError as `open`."""
        self.open(node, parent, dumped["limits"], dumped["used"])
        account = self._account(node)
        account.held, account.caps = dict(dumped["held"]), dict(dumped["caps"])

    def recall(self, node: Node, used: Amounts) -> None:
        """What an open node had used before it was known here; those above are not told. Raises ValueError."""
        _add(self._account(node).used, _positive(used))

    # ------------------------------------------------------------ asking

    def can(self, node: Node, amounts: Amounts) -> Refused | None:
        """What `reserve` would refuse, without reserving: the check before anybody is asked for an approval.

        Raises ValueError for an amount below 0, as all that ask, spend and settle.
        """
        _positive(amounts)
        return _refusal(self._path(node), amounts)

    def reserve(self, node: Node, amounts: Amounts, aside: bool = False) -> Reservation | Refused:
        """Bind amounts until the reservation is settled or released. ``aside``: `announce` follows, or nothing does."""
        path, bound = self._path(node), _positive(amounts)
        refused = _refusal(path, amounts)
        if refused is not None:
            return refused
        for account in path:
            reserved = account.reserved
            for name, n in bound.items():
                reserved[name] = reserved.get(name, 0) + n
            if aside:
                _add(account.aside, bound)
        return Reservation(node, bound, path, _aside=aside)

    def announce(self, reservation: Reservation) -> None:
        """What was set aside is in the log from now on (rule 11); any other reservation is already."""
        if reservation._aside:
            reservation._aside = False
            for account in reservation._path:
                for name, n in reservation.amounts.items():
                    account.aside[name] -= n

    def settle(self, reservation: Reservation, actual: Amounts | None = None) -> dict[str, int] | None:
        """End a reservation with what was really used: rules 4 to 6. The changes of used; None: it had ended before."""
        if not reservation._open:
            return None
        used = reservation.amounts.copy()
        if actual:
            _replace(used, actual)
        used.pop(_BRANCHES, None)
        self._end(reservation)
        return _spend(reservation._path, used)

    def release(self, reservation: Reservation) -> bool:
        """End a reservation with nothing used. False: it had ended before."""
        if not reservation.open:
            return False
        self._end(reservation)
        return True

    def charge(self, node: Node, amounts: Amounts) -> dict[str, int] | Refused:
        """Reserve and settle at once: the changes of used."""
        path, spent = self._path(node), _positive(amounts)
        refused = _refusal(path, amounts)
        return _spend(path, spent) if refused is None else refused

    def spend(self, node: Node, amounts: Amounts) -> dict[str, int]:
        """Use what nobody could foresee (bytes of an output); debt is allowed. The changes of used."""
        return _spend(self._path(node), _positive(amounts))

    # ------------------------------------------------------------ the wrap-up

    def hold_back(self, node: Node, amounts: Amounts) -> None:
        """Keep amounts of the node's own limits for its wrap-up (rule 7), in place of what was kept before."""
        self._account(node).held = _positive(amounts)

    def open_wrap_up(self, node: Node) -> dict[str, int]:
        """From now on what was held back may be asked for, and no more of it. What it was; a second time nothing."""
        return self._account(node).open_wrap_up()

    # ------------------------------------------------------------ reading

    def left(self, node: Node, dimension: str) -> int | None:
        """The most that a reservation may ask for now, never below 0; None: without a limit."""
        least: int | None = None
        for account in self._path(node):
            cap = account.caps.get(dimension)
            if cap is not None:
                free = cap - account.taken(dimension) - account.held.get(dimension, 0)
                least = free if least is None or free < least else least
        return least if least is None or least > 0 else 0

    def limited(self, node: Node, dimension: str) -> bool:
        """Whether any limit holds for a dimension, here or above."""
        return any(dimension in account.caps for account in self._path(node))

    def view(self, node: Node) -> dict[str, DimensionView]:
        """Every dimension as it stands, and each tool that has a limit or was used."""
        account = self._account(node)
        named = {*account.limits, *account.used, *account.reserved}.difference(Dimension)
        return {name: self._dimension(account, name) for name in (*_VIEWED, *sorted(named))}

    def record(self, node: Node, deadline_ns: int, now_ns: int) -> BudgetRecord:
        """The short form of what is left."""
        counted = (Dimension.MODEL_CALLS, Dimension.TOOL_CALLS, Dimension.OUTPUT_BYTES)
        return BudgetRecord(deadline_ns, remaining_ms(deadline_ns, now_ns), *(self.left(node, one) for one in counted))

    # ------------------------------------------------------------ inside

    def _path(self, node: Node) -> tuple[_Account, ...]:
        path = self._paths.get(node)
        if path is None:
            raise ValueError(f"{node} is not open")
        return path

    def _account(self, node: Node) -> _Account:
        return self._path(node)[0]

    def _end(self, reservation: Reservation) -> None:
        if reservation._aside:
            self.announce(reservation)
        reservation._open = False
        amounts = reservation.amounts
        for account in reservation._path:
            reserved = account.reserved
            for name, n in amounts.items():
                reserved[name] -= n

    def _dimension(self, account: _Account, name: str) -> DimensionView:
        used, reserved = account.used.get(name, 0), account.reserved.get(name, 0)
        return DimensionView(account.limits.get(name), used, reserved, self.left(account.node, name))


@functools.lru_cache(maxsize=1_024)
def call_amounts(tool: str) -> Amounts:
    """What a call reserves before its frame is written. Of output a byte: where none is left no call begins."""
    return MappingProxyType({_TOOL_CALLS: 1, tool_calls_of(tool): 1, _BRANCHES: 1, _OUTPUT_BYTES: 1})


def model_amounts(tokens_in: int, tokens_out: int, cost_micros: int) -> dict[str, int]:
    """What an attempt at a model call uses: what was reported, or for `Ledger.reserve` what is estimated."""
    return {
        Dimension.MODEL_CALLS: 1,
        Dimension.TOKENS_IN: tokens_in,
        Dimension.TOKENS_OUT: tokens_out,
        Dimension.TOKENS_TOTAL: tokens_in + tokens_out,
        Dimension.COST_MICROS: cost_micros,
    }


def _refusal(path: tuple[_Account, ...], amounts: Amounts) -> Refused | None:
    for account in path:
        refused = account.refusal(amounts) if account.caps else None  # most users and tenants have no limits
        if refused is not None:
            return refused
    return None


def _spend(path: tuple[_Account, ...], amounts: dict[str, int]) -> dict[str, int]:
    for account in path:  # written out, as what reserves: every call passes here, several times
        used = account.used
        for name, n in amounts.items():
            used[name] = used.get(name, 0) + n
    return amounts


def _positive(amounts: Amounts) -> dict[str, int]:
    plain = {}
    for name, n in amounts.items():
        if n < 0:
            raise ValueError(f"{name} = {n}: amounts are at least 0")
        if n:
            plain[str(name)] = n
    return plain


def _replace(amounts: dict[str, int], by: Amounts) -> None:
    """Nothing is changed where one of ``by`` cannot be."""
    real = _positive(by)
    for name in by:
        amounts.pop(name, None)
    amounts.update(real)


def _add(to: dict[str, int], amounts: Amounts) -> None:
    for name, n in amounts.items():
        to[name] = to.get(name, 0) + n


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    total = dict(one)
    _add(total, other)
    return total


# ---------------------------------------------------------------- words

_REASONS: dict[str, str] = {
    Dimension.STEPS: "step_budget",
    Dimension.MODEL_CALLS: "model_call_budget",
    Dimension.TOOL_CALLS: "tool_call_budget",
    Dimension.TOKENS_IN: "token_budget",
    Dimension.TOKENS_OUT: "token_budget",
    Dimension.TOKENS_TOTAL: "token_budget",
    Dimension.COST_MICROS: "cost_budget",
    Dimension.OUTPUT_BYTES: "output_budget",
    Dimension.RETRIES: "retry_budget",
}


def run_reason(refused: Refused) -> str | None:
    """Why a run settles whose reservation was refused; None: it goes on, only that call is refused (``branches``)."""
    if refused.dimension == Dimension.BRANCHES:
        return None
    if refused.node.level in (Level.TENANT, Level.USER):
        return "tenant_budget"
    return _REASONS.get(refused.dimension, "per_tool_budget")
