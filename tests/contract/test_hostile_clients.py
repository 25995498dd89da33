"""Programs of tests/hostile as clients: each is cut, answered or forgotten, and good clients are served meanwhile."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from deadlined import Client
from tests.contract.hostile_play import judge_good, worse
from tests.contract.hostile_rows import DAEMON
from tests.contract.hostile_world import GOOD, World, interpreter, open_world, settles, whose

pytestmark = pytest.mark.contract

CONFIG = DAEMON.replace("in_flight = 4", "in_flight = 40\nhello_timeout_ms = 500")


@pytest.fixture(scope="module", params=whose())
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A daemon that waits half a second for a hello, and the words that start a client as its uid."""
    words = interpreter(request.param, request)
    with open_world(request.param, words, CONFIG) as world:
        world.notes["words"] = words
        yield world


@pytest.fixture
def attacked(world: World) -> Iterator[Callable[..., str]]:
    """Runs a client beside a good one, and returns what it said; at the end the daemon must be as before."""
    with Client(world.socket) as client:
        judge_good(client.call("shell", GOOD, deadline_ms=30_000))
    before = world.health()

    def attack(program: str, count: int, **environment: str) -> str:
        given = {**world.environment(), "HOSTILE_SOCKET": world.socket, "HOSTILE_COUNT": str(count), **environment}
        argv = [*world.notes["words"], *world.argv(program)[1:]]
        with (
            Client(world.socket) as client,  # while 32 others wait for their hello no new one is heard
            subprocess.Popen(argv, env=given, stdout=subprocess.PIPE, text=True) as hostile,
        ):
            while hostile.poll() is None:
                judge_good(client.call("shell", GOOD, deadline_ms=30_000))
            assert hostile.stdout is not None
            assert hostile.returncode == 0
            return hostile.stdout.read()

    yield attack
    settles(lambda: world.witness.strangers() or worse(before, world.health()))
    assert "Traceback" not in world.log
    with Client(world.socket) as client:
        assert client.status().degraded == []


def words(world: World, detach: bool) -> str:
    """A hello and a call that does not end by itself, as JSON lines."""
    arguments = json.dumps({"argv": ["sleep", "600"], "env": world.environment()})
    submit = {"op": "submit", "id": 1, "tool": "shell", "arguments": arguments, "deadline_ms": 3_600_000}
    return "".join(
        json.dumps(line) + "\n"
        for line in ({"op": "hello", "version": 1}, submit | {"detach": detach, "announce": True})
    )


def test_clients_that_send_a_byte_now_and_then_are_all_cut(attacked):
    """More of them than may wait for their hello at once."""
    assert attacked("drips_at_the_daemon", 60) == "ready\ncut 60 open 0\n"


def test_random_words_get_a_reply_or_an_end_each(attacked):
    reply, close, silence = (int(said.split()[1]) for said in _pairs(attacked("babbles_at_the_daemon", 150)))
    assert (reply + close, silence) == (150, 0)
    assert reply > 0


def _pairs(said: str) -> list[str]:
    words = said.split()
    return [f"{name} {count}" for name, count in zip(words[::2], words[1::2], strict=True)]


def test_clients_that_vanish_take_their_calls_with_them(world, attacked):
    assert "said all of it" in attacked("leaves_the_daemon", 60, HOSTILE_WORDS=words(world, detach=False))
    with Client(world.socket) as client:
        settles(lambda: [row for row in client.processes() if row.call])


def test_detached_calls_of_clients_that_vanished_are_there_to_be_ended(world, attacked):
    said = attacked("leaves_the_daemon", 16, HOSTILE_WORDS=words(world, detach=True))
    with Client(world.socket) as client:
        kept = [row.call for row in client.processes() if row.call]
        assert 0 < len(kept) <= int(said.split()[4])
        for call in kept:
            client.handle(call).cancel()
        assert {client.handle(call).wait().status for call in kept} == {"cancelled"}
