"""Workers that have become hostile programs and hold the protocol's descriptor: each costs its own call, is killed and
never used again, and what they say raises nothing in the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client
from protocol import CallResult
from tests.contract.hostile_play import check, gone, judge_good, worse
from tests.contract.hostile_rows import DAEMON
from tests.contract.hostile_world import GOOD, PROGRAMS, Watch, World, interpreter, open_world, settles, whose

pytestmark = pytest.mark.contract

CONFIG = f"""{DAEMON}
[tool.become]
kind = "python"
module = "hostile_bodies"
path = ["{Path(__file__).parent}"]
[tool.listen]
kind = "python"
module = "hostile_bodies"
[tool.listen.limits]
open_files = 77
"""
BROKEN = {"status": "crashed", "reason": "protocol_error", "delivery": "unknown", "retryable": False}
DIED = {"status": "crashed", "reason": "worker_lost", "delivery": "unknown", "output.view": "half a lin"}
KILLED = {"status": "killed", "reason": "time_budget", "kill.confirmed": True, "exit.signal": "SIGKILL"}


@pytest.fixture(scope="module", params=whose())
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A daemon of each uid whose workers may be put in the hands of a program."""
    with open_world(request.param, interpreter(request.param, request), CONFIG) as world:
        with Client(world.socket) as client:
            client.call("shell", {"argv": ["true"]}, deadline_ms=30_000)
        yield world


def attacked(world: World, tool: str, arguments: dict[str, Any], deadline_ms: int) -> CallResult:
    """Call it beside a good call; the result, once the witness has seen nobody of it any more."""
    before, watch = world.health(), Watch(world.witness)
    with Client(world.socket) as client:
        watch.start()
        hostile = client.submit(tool, arguments, deadline_ms=deadline_ms)
        good = client.submit("shell", GOOD, deadline_ms=30_000)
        result = hostile.wait()
        left = gone(world.witness, watch, world.witness.strangers(), ended=False)  # the worker is the program
        watch.stop()
        judge_good(good.wait())
    assert left == [], (left, result)
    settles(lambda: worse(before, world.health()))
    assert "Traceback" not in world.log
    return result


def become(world: World, program: str, how: str, deadline_ms: int) -> CallResult:
    environment = world.environment(HOSTILE_HOW=how)
    arguments = {"program": str(PROGRAMS / f"{program}.py"), "environment": environment}
    return attacked(world, "become", arguments, deadline_ms)


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("says_garbage", ""),
        ("announces_too_much", "big"),
        ("announces_too_much", "little"),
        ("nests", "msgpack"),
        ("nests", "json"),
        ("nests", "answer"),
    ],
)
def test_a_worker_that_breaks_the_protocol_ends_its_own_call_as_a_protocol_error(world, program, how):
    check(become(world, program, how, 20_000), BROKEN)


@pytest.mark.parametrize("how", ["whole", "drops"])
def test_half_a_frame_does_not_stop_the_deadline(world, how):
    check(become(world, "says_half", how, 800), KILLED)


@pytest.mark.parametrize(
    ("how", "ended"),
    [
        # The first process of a namespace: abort(3) ends in a trap and its own SIGKILL is ignored (pid_namespaces(7)).
        ("segfault", {"exit.signal": "SIGSEGV"}),
        ("abort", {"exit.signal": "SIGSEGV"}),
        ("kill", {"exit.code": 1}),
        ("exit", {"exit.code": 255}),
        ("raise", {"exit.code": 1}),
    ],
)
def test_a_worker_that_dies_within_a_frame_crashes_with_its_code_and_its_output_is_kept(world, how, ended):
    result = become(world, "crashes", how, 20_000)
    result.output.view = result.output.view[: len("half a lin")]  # Python's own words may follow
    check(result, {**DIED, **ended})


@pytest.mark.parametrize("size", [10, 900_000], ids=["a small call", "a call that fills the socket"])
def test_a_worker_that_never_reads_is_ended_at_the_deadline(world, size):
    check(attacked(world, "listen", {"text": "x" * size}, 800), KILLED)
