"""The ledger against a plain model: any sequence, and reservations side by side."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from protocol._budgets import DimensionView
from supervisor.core.budget import (
    Ledger,
    Level,
    Node,
    Refused,
    Reservation,
)

# ---------------------------------------------------------------- against a plain model

NODES = [
    Node(Level.TENANT, "t"),
    Node(Level.USER, "u"),
    Node(Level.SESSION, "s"),
    Node(Level.RUN, "a"),
    Node(Level.RUN, "b"),
    Node(Level.RUN, "a.1"),
]
ABOVE = {
    NODES[0]: None,
    NODES[1]: NODES[0],
    NODES[2]: NODES[1],
    NODES[3]: NODES[2],
    NODES[4]: NODES[2],
    NODES[5]: NODES[3],
}
KINDS = ["tool_calls", "tokens_total", "branches"]
node_names = st.sampled_from(NODES)
some = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 4), max_size=3)
limits = st.dictionaries(st.sampled_from(KINDS), st.none() | st.integers(0, 12), max_size=3)


def lineage(node: Node | None) -> list[Node]:
    return [] if node is None else [node, *lineage(ABOVE[node])]


class Books:
    """The plain model: every fact in one list, and sums over it."""

    def __init__(self) -> None:
        self.limits: dict[Node, dict[str, int | None]] = {}
        self.caps: dict[Node, dict[str, int]] = {}
        self.held: dict[Node, dict[str, int]] = {}
        self.facts: list[tuple[str, tuple[Node, ...], dict[str, int]]] = []
        """(``used`` or ``reserved``, every node it counts for, amounts)."""

    def total(self, what: str, node: Node, kind: str) -> int:
        return sum(amounts.get(kind, 0) for fact, nodes, amounts in self.facts if fact == what and node in nodes)

    def taken(self, node: Node, kind: str) -> int:
        return self.total("used", node, kind) + self.total("reserved", node, kind)

    def grants(self, node: Node, amounts: dict[str, int]) -> bool:
        return all(self.fits(one, kind, n) for one in lineage(node) for kind, n in amounts.items())

    def cap(self, node: Node, kind: str) -> int | None:
        both = [one for one in (self.limits[node].get(kind), self.caps[node].get(kind)) if one is not None]
        return min(both, default=None)

    def fits(self, node: Node, kind: str, n: int) -> bool:
        limit = self.cap(node, kind)
        held = self.held[node].get(kind, 0) if n else 0
        return limit is None or self.taken(node, kind) + held + n <= limit

    def left(self, node: Node, kind: str) -> int | None:
        free = [
            limit - self.taken(one, kind) - self.held[one].get(kind, 0)
            for one in lineage(node)
            if (limit := self.cap(one, kind)) is not None
        ]
        return max(0, min(free)) if free else None


class AgainstThePlainModel(RuleBasedStateMachine):
    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.machine, self.model = Ledger(), Books()
        self.ended = 0

    @rule(node=node_names, limits=limits)
    def open(self, node: Node, limits: dict[str, int | None]) -> None:
        if node in self.model.limits or not all(one in self.model.limits for one in lineage(ABOVE[node])):
            with pytest.raises(ValueError):
                self.machine.open(node, ABOVE[node], limits)
            return
        self.machine.open(node, ABOVE[node], limits)
        self.model.limits[node], self.model.held[node], self.model.caps[node] = limits, {}, {}

    @rule(node=node_names)
    def close(self, node: Node) -> None:
        if node not in self.model.limits or any(ABOVE[one] == node for one in self.model.limits):
            with pytest.raises(ValueError):
                self.machine.close(node)
            return
        self.machine.close(node)
        del self.model.limits[node], self.model.held[node]
        self.model.facts = [
            (what, tuple(one for one in nodes if one != node), amounts) for what, nodes, amounts in self.model.facts
        ]

    @rule(target=reservations, node=node_names, amounts=some)
    def reserve(self, node: Node, amounts: dict[str, int]) -> object:
        if node not in self.model.limits:
            return multiple()
        expected, before = self.model.grants(node, amounts), self.views()
        assert (self.machine.can(node, amounts) is None) == expected
        asked = self.machine.reserve(node, amounts)
        if isinstance(asked, Refused):
            self.refusal_is_right(asked, node, amounts, expected)
            assert self.views() == before, "what is refused changes nothing"
            return multiple()
        assert expected
        fact = ("reserved", tuple(lineage(node)), amounts)
        self.model.facts.append(fact)
        return asked, self.model.facts.index(fact)

    @rule(node=node_names, amounts=some)
    def charge(self, node: Node, amounts: dict[str, int]) -> None:
        amounts = {kind: n for kind, n in amounts.items() if kind != "branches"}
        if node not in self.model.limits:
            return
        expected = self.model.grants(node, amounts)
        asked = self.machine.charge(node, amounts)
        if isinstance(asked, Refused):
            self.refusal_is_right(asked, node, amounts, expected)
            return
        assert expected
        assert asked == {kind: n for kind, n in amounts.items() if n}
        self.model.facts.append(("used", tuple(lineage(node)), amounts))

    @rule(held=consumes(reservations), again=st.booleans(), data=st.data())
    def settle(self, held: tuple[Reservation, int], again: bool, data: st.DataObject) -> None:
        reservation, number = held
        _, nodes, amounts = self.model.facts[number]
        actual = data.draw(some)
        final = {kind: n for kind, n in {**amounts, **actual}.items() if kind != "branches"}
        assert self.machine.settle(reservation, actual) == {kind: n for kind, n in final.items() if n}
        self.model.facts[number] = ("used", nodes, final)
        self.ends_no_second_time(reservation)

    @rule(held=consumes(reservations))
    def release(self, held: tuple[Reservation, int]) -> None:
        reservation, number = held
        assert self.machine.release(reservation)
        self.model.facts[number] = ("nothing", (), {})
        self.ends_no_second_time(reservation)

    @rule(node=node_names, amounts=some)
    def hold_back(self, node: Node, amounts: dict[str, int]) -> None:
        if node in self.model.limits:
            self.machine.hold_back(node, amounts)
            self.model.held[node] = amounts

    @rule(node=node_names)
    def open_wrap_up(self, node: Node) -> None:
        if node in self.model.limits:
            held = {kind: n for kind, n in self.model.held[node].items() if n}
            assert self.machine.open_wrap_up(node) == held
            self.model.held[node] = {}
            for kind, n in held.items():
                cap = self.model.taken(node, kind) + n
                self.model.caps[node][kind] = min(cap, self.model.caps[node].get(kind, cap))

    def refusal_is_right(self, refusal: Refused, node: Node, amounts: dict[str, int], expected: bool) -> None:
        assert not expected
        path = lineage(node)
        one, kind = refusal.node, refusal.dimension
        below = path[: path.index(one)]
        assert all(self.model.fits(other, other_kind, n) for other in below for other_kind, n in amounts.items())
        assert not self.model.fits(one, kind, amounts[kind])
        assert (refusal.limit, refusal.asked) == (self.model.cap(one, kind), amounts[kind])
        assert refusal.used == self.model.total("used", one, kind)
        assert refusal.reserved == self.model.total("reserved", one, kind)

    def ends_no_second_time(self, reservation: Reservation) -> None:
        before = self.views()
        assert self.machine.settle(reservation, {"tokens_total": 99}) is None
        assert not self.machine.release(reservation)
        assert self.views() == before

    def views(self) -> dict[Node, dict[str, DimensionView]]:
        return {node: self.machine.view(node) for node in self.model.limits}

    @invariant()
    def every_view_is_right(self) -> None:
        assert len(self.machine) == len(self.model.limits)
        for node, view in self.views().items():
            for kind in KINDS:
                own = self.model.limits[node].get(kind)
                counts = self.model.total("used", node, kind), self.model.total("reserved", node, kind)
                assert view[kind] == DimensionView(own, *counts, self.model.left(node, kind)), (node, kind)

    @invariant()
    def what_is_left_is_exactly_what_is_granted(self) -> None:
        for node in self.model.limits:
            left = self.machine.left(node, "tool_calls")
            if left is None:
                assert self.machine.can(node, {"tool_calls": 10**9}) is None
                continue
            assert left == 0 or self.machine.can(node, {"tool_calls": left}) is None
            assert self.machine.can(node, {"tool_calls": left + 1}) is not None


class ParallelReservations(RuleBasedStateMachine):
    """Only foreseeable amounts: then nothing ever passes a limit, whoever asks in whichever order."""

    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.machine = Ledger()
        self.limits = [{"tool_calls": 9}, {"tool_calls": 7, "branches": 3}, {}, {"tool_calls": 3}, {"branches": 2}, {}]
        for node, mine in zip(NODES, self.limits, strict=True):
            self.machine.open(node, ABOVE[node], mine)

    @rule(target=reservations, node=node_names, tool_calls=st.integers(0, 3), branches=st.integers(0, 1))
    def reserve(self, node: Node, tool_calls: int, branches: int) -> object:
        asked = self.machine.reserve(node, {"tool_calls": tool_calls, "branches": branches})
        return asked if isinstance(asked, Reservation) else multiple()

    @rule(reservation=consumes(reservations), data=st.data())
    def settle(self, reservation: Reservation, data: st.DataObject) -> None:
        self.machine.settle(
            reservation, {"tool_calls": data.draw(st.integers(0, reservation.amounts.get("tool_calls", 0)))}
        )

    @rule(reservation=consumes(reservations))
    def release(self, reservation: Reservation) -> None:
        self.machine.release(reservation)

    @invariant()
    def no_limit_is_ever_passed(self) -> None:
        for node, mine in zip(NODES, self.limits, strict=True):
            view = self.machine.view(node)
            for kind, limit in mine.items():
                assert view[kind].used + view[kind].reserved <= limit


AgainstThePlainModel.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
ParallelReservations.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestTheLedgerIsThePlainModel = AgainstThePlainModel.TestCase
TestParallelReservations = ParallelReservations.TestCase
