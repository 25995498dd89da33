"""The programs of tests/hostile as commands, through a daemon and through ``exec``, as root and as a plain uid: one
outcome each, told when nothing of the call is alive any more, and a daemon that is as before.

Each row of `hostile_rows` is a misbehaviour and what must be said of it. The witness is a control group.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from deadlined import Client
from tests.contract.hostile_play import play, play_exec
from tests.contract.hostile_rows import CONFIG, FLOOD, MEMORY_LIMIT, NO_MEMORY_LIMIT, ROWS, Row
from tests.contract.hostile_world import PROGRAMS, World, interpreter, open_world, settles, whose

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module", params=whose())
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A daemon of each uid, in turn, for all tests of the module."""
    with open_world(request.param, interpreter(request.param, request), CONFIG) as world:
        with Client(world.socket) as client:
            for _ in range(3):  # a large call takes memory that is not given back, and used again
                client.call("shell", {"argv": ["true"], "stdin": "x" * 900_000}, deadline_ms=30_000)
        world.notes["began"] = world.settled()
        world.notes["resident"] = world.resident_kib()
        yield world


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_hostile_command_costs_its_own_call_only(world: World, row: Row):
    play(world, row)


def test_a_flood_up_to_the_default_cap_costs_the_daemon_no_memory(world: World):
    before = world.resident_kib()
    result = play(world, Row("floods", {"reason": "output_limit", "output.bytes": 64 << 20, "output.truncated": True}))
    assert result.output.view.startswith(FLOOD)
    assert result.output.view.endswith("x" * 100)
    assert result.output.path is not None
    assert os.path.getsize(result.output.path) == 64 << 20
    assert world.resident_kib() - before < 4 << 10


def test_memory_beyond_its_limit_ends_the_tool_and_nobody_else(world: World):
    """Without a memory controller, which a plain uid may not have, the deadline does."""
    play(world, MEMORY_LIMIT if '"limits": ["memory' in world.log else NO_MEMORY_LIMIT)


def test_after_all_of_them_the_daemon_is_as_it_was(world: World):
    """Threads of its pool end after ten idle seconds, workers that nobody needs after one."""
    began, grown = world.notes["began"], world.resident_kib() - world.notes["resident"]
    settles(lambda: [(before, now) for before, now in zip(began, world.health(), strict=True) if now > before])
    assert grown < 8 << 10
    assert "Traceback" not in world.log
    with Client(world.socket) as client:
        assert client.status().degraded == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.exec_code is not None], ids=str)
def test_a_hostile_command_is_ended_without_a_daemon_too(python: list[str], row: Row):
    program = PROGRAMS / f"{row.program}.sh"
    argv = ["/bin/sh", str(program)] if program.exists() else [python[-1], str(PROGRAMS / f"{row.program}.py")]
    play_exec(python, argv, row)


@pytest.mark.parametrize("program", sorted(path.name for path in PROGRAMS.glob("[a-z]*")))
def test_no_hostile_program_runs_by_accident(program: str):
    interpreter = "/bin/sh" if program.endswith(".sh") else sys.executable
    environment = {name: value for name, value in os.environ.items() if name != "DEADLINED_HOSTILE"}
    words = [interpreter, str(PROGRAMS / program)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stdout == ""
