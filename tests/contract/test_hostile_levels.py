"""The core of the hostile programs where there are no namespaces: on a host that refuses them, and where isolation
``none`` asks for none. As root and as a plain uid.

Every process of an ordinary tree dies there too, daemons among them, and is counted. What is not held there stands in
`attacks`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import pytest

from deadlined import Client
from tests.contract.hostile_play import play
from tests.contract.hostile_rows import CONFIG, CORE, Row
from tests.contract.hostile_world import ISOLATION_NONE, LOWER, World, interpreter, lowered, open_world, settles, whose

pytestmark = pytest.mark.contract


def level_of(kind: str) -> tuple[str, str]:
    """What every result must say: containment and isolation."""
    if ISOLATION_NONE in kind:
        return ("cgroup" if kind.startswith("own uid") and os.getuid() == 0 else "subreaper"), "none"
    return "subreaper", "limits"


@pytest.fixture(scope="module", params=[f"{uid}, {place}" for uid in whose() for place in LOWER])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A daemon at each level below `pidns` that this host can be made to give."""
    words, config = lowered(request.param, interpreter(request.param, request), CONFIG)
    with open_world(request.param, words, config) as world:
        with Client(world.socket) as client:
            client.call("shell", {"argv": ["true"]}, deadline_ms=30_000)
        world.notes["began"] = world.settled()
        yield world


@pytest.mark.parametrize("row", CORE, ids=str)
def test_a_hostile_command_costs_its_own_call_only_without_namespaces(world: World, row: Row):
    if ISOLATION_NONE in world.kind and row.exec_ready is not None:
        row = dataclasses.replace(row, ready=row.exec_ready)  # no limit but its caller's, as for `exec`
    result = play(world, row)
    assert (result.containment, result.isolation.achieved) == level_of(world.kind)


def test_after_all_of_them_nothing_is_left_of_workers_and_guards(world: World):
    began = world.notes["began"]._replace(threads=99)
    settles(lambda: [(before, now) for before, now in zip(began, world.health(), strict=True) if now > before])
    assert "Traceback" not in world.log
