"""What the daemon's process does before there is anything to run, and what it waits for when it stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio

from supervisor.config import Config
from supervisor.daemon import Daemon, main
from tests.supervisor.test_runs import World


class NoCalls:
    """Nothing runs."""

    def __init__(self) -> None:
        self.gate = SimpleNamespace(close=lambda: None)
        self.live: dict[str, Any] = {}

    async def wait_idle(self) -> None:
        """At once."""


def test_an_empty_socket_is_refused_and_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEADLINED_SOCKET", "/" + "x" * 200)  # of no use: nothing starts, whatever is asked for
    assert main(None, "") == 2
    assert capsys.readouterr().err.startswith("deadlined: --socket: ")


async def test_a_daemon_that_stops_has_told_of_its_runs_before_its_door_closes(autojump_clock: object) -> None:
    world, told = World(), []
    run = world.open()
    run.watchers[(None, 1)] = told.append
    world.disk.holds = True
    parts: Any = SimpleNamespace(calls=NoCalls(), runs=world.runs)
    daemon = Daemon(Config(), "/nowhere", structlog.get_logger(), as_json=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drained, daemon, parts, told)
        await trio.sleep(1)
        assert told == []
        world.disk.answer(True)
    assert [(stop.status, stop.reason) for stop in told[:-1]] == [("cancelled", "shutdown")]
    assert told[-1] == "drained"


async def _drained(daemon: Daemon, parts: Any, told: list[Any]) -> None:
    await daemon._drain(parts)
    told.append("drained")
