"""Which worker serves a call: lines of one flavour and of several, with pools of the test's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.core.call import State
from supervisor.placement import Placement


class Pool:
    """``cramped``: calls wait for its workers, and others have every slot."""

    def __init__(self) -> None:
        self.idle: list[Any] = []
        self.cramped = False
        self.wanted = self.given_up = 0

    def take(self) -> Any:
        return self.idle.pop() if self.idle else None

    def keep(self, worker: Any) -> None:
        self.idle.append(worker)

    def want(self, calls: int) -> None:
        self.wanted = calls

    def give_up_one(self) -> None:
        if self.idle:
            self.idle.pop(0)
            self.given_up += 1


class Bench:
    """Two flavours, ``here`` and ``there``."""

    def __init__(self) -> None:
        self.placed: list[tuple[Any, Any]] = []
        killer: Any = SimpleNamespace(armed=True)
        self.placement = Placement(killer, self._place)
        self.here, self.there = Pool(), Pool()
        pools: Any = {"here": self.here, "there": self.there}
        self.placement.pools = pools

    def _place(self, call: Any, worker: Any) -> bool:
        self.placed.append((call, worker))
        return True

    def grant(self, flavour: str) -> Any:
        call: Any = SimpleNamespace(
            judged=SimpleNamespace(flavour=flavour), machine=SimpleNamespace(state=State.WAITING)
        )
        self.placement.grant(call)
        return call

    def idle(self, flavour: str) -> Any:
        worker: Any = SimpleNamespace(flavour=flavour, ended_for=None)
        self.placement.idle(worker)
        return worker


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_call_gets_a_ready_worker_or_the_first_that_gets_free(bench: Bench) -> None:
    ready = bench.idle("here")
    first, second = bench.grant("here"), bench.grant("here")
    assert bench.placed == [(first, ready)]
    assert bench.here.wanted == 1
    later = bench.idle("here")
    assert bench.placed[1:] == [(second, later)]
    assert bench.here.wanted == 0


def test_idle_workers_of_another_flavour_go_when_they_have_every_slot(bench: Bench) -> None:
    bench.idle("there")
    bench.here.cramped = True
    bench.grant("here")
    assert bench.there.given_up == 1


def test_a_slot_that_was_free_at_the_grant_and_is_taken_since_is_made_good_by_the_next_idle_worker(
    bench: Bench,
) -> None:
    bench.grant("here")
    bench.here.cramped = True  # another flavour was faster
    bench.idle("there")
    assert bench.there.given_up == 1


def test_nobody_goes_for_a_line_that_is_empty_or_can_be_served(bench: Bench) -> None:
    bench.here.cramped = True
    bench.idle("there")
    bench.here.cramped = False
    bench.grant("here")
    bench.idle("there")
    assert bench.there.given_up == 0
