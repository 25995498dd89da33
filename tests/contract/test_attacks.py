"""What calls can do to the daemon and around them: the exact table, at each level, as root and as a plain uid. A cell
that changes, for the better or the worse, fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.attacks import CANARY, CARRIED, attempted, held
from tests.contract.hostile_rows import DAEMON
from tests.contract.hostile_world import LOWER, World, interpreter, lowered, open_world, whose

pytestmark = pytest.mark.contract


@pytest.fixture(params=[", ".join(filter(None, (uid, place))) for uid in whose() for place in ("", *LOWER)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A daemon of this test's own, which carries a secret in its environment."""
    secret = uuid.uuid4().hex
    words, config = lowered(request.param, interpreter(request.param, request), DAEMON)
    with open_world(request.param, words, config, **CARRIED, **{CANARY: secret}) as world:
        world.notes[CANARY] = secret
        yield world


def test_what_a_call_can_do_is_exactly_what_is_documented(world: World):
    assert attempted(world) == held(world)


@pytest.mark.parametrize("uid", whose())
def test_a_call_can_neither_stop_nor_kill_the_daemon_nor_its_own_worker(uid: str, request: pytest.FixtureRequest):
    """The first process of its namespace is the worker; signals from inside do not reach it (pid_namespaces(7))."""
    with open_world(uid, interpreter(uid, request), DAEMON) as world, Client(world.socket) as client:
        environment = world.environment(HOSTILE_TARGET_PID=str(world.pid))
        arguments = {"argv": world.argv("kills_the_supervisor"), "env": environment}
        result = client.call("shell", arguments, deadline_ms=30_000)
        assert (result.status, [line.rstrip("0123456789 ") for line in result.output.view.splitlines()]) == (
            "ok",
            [
                "SIGSTOP-to-supervisor refused",
                "SIGSTOP-to-pid1 obtained",
                "SIGKILL-to-supervisor refused",
                "SIGKILL-to-pid1 obtained",
            ],
        )
        assert client.call("shell", {"argv": ["true"]}, deadline_ms=30_000).status == "ok"
        assert world.private.process.poll() is None


def test_a_tool_is_taken_for_memory_before_its_daemon(request: pytest.FixtureRequest):
    with open_world("own uid", interpreter("own uid", request), DAEMON) as world, Client(world.socket) as client:
        arguments = {"argv": world.argv("inherits"), "env": world.environment()}
        (score,) = [
            int(line.split()[1])
            for line in client.call("shell", arguments, deadline_ms=30_000).output.view.splitlines()
            if line.startswith("oom ")
        ]
        assert score > int(Path(f"/proc/{world.pid}/oom_score_adj").read_text())
