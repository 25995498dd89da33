"""Who reads which clock: what decides is monotonic, and the wall clock is a stamp for people."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio.testing

import supervisor
from supervisor import clock

ROOT = Path(supervisor.__file__).parent
ROOMS = ("core", "containment", "doors")
KEEP_TIME = ("calls", "placement", "retries", "aftermath", "trouble", "gate", "leaks", "memory_watch", "output_watch")
"""What decides when a call waits, is killed, is tried again or is looked at."""


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each import; the name is empty where the module itself is imported."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def modules() -> dict[str, set[tuple[str, str]]]:
    found = {}
    for path in ROOT.rglob("*.py"):
        found[".".join(path.relative_to(ROOT).with_suffix("").parts)] = set(imports(path))
    return found


@pytest.mark.case("B110")
def test_one_module_of_the_daemon_reads_clocks():
    readers = {
        name
        for name, imported in modules().items()
        if {module for module, what in imported if what != "sleep"} & {"time", "datetime"}
    }
    assert readers == {"clock"}


@pytest.mark.case("B110")
def test_nothing_that_decides_when_something_happens_has_the_wall_clock():
    found = modules()
    assert set(KEEP_TIME) < set(found)
    keepers = [name for name in found if name in KEEP_TIME or name.startswith(ROOMS)]
    assert [name for name in keepers if ("supervisor.clock", "wall_ms") in found[name]] == []


@pytest.mark.case("B110")
@pytest.mark.parametrize("step_s", [-3_600, 3_600])
async def test_a_step_of_the_wall_clock_moves_no_instant_and_shows_in_stamps_alone(monkeypatch, step_s):
    before = clock.wall_ms()
    wall, wall_ns, deadline_ns = time.time, time.time_ns, clock.now_ns() + 10 * clock.NS_PER_S
    monkeypatch.setattr(time, "time", lambda: wall() + step_s)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + step_s * clock.NS_PER_S)
    assert abs(clock.wall_ms() - before - step_s * 1_000) < 60_000
    assert 0 < deadline_ns - clock.now_ns() <= 10 * clock.NS_PER_S
    assert 0 < clock.loop_time(deadline_ns) - trio.current_time() <= 10
