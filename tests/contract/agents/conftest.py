"""What the tests of agents share: the product's own loop in this process, a scripted model that decides in it; the
daemon and its workers are real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import trio

from deadlined.agent import Outcome, steer
from deadlined.async_client import AsyncClient
from deadlined.async_runs import AsyncRun
from protocol._events import Event
from protocol._runs import ApprovalView, RunRow
from supervisor.core.model_events import Request
from tests.contract.conftest import TestedDaemon
from tests.supervisor.lines import ScriptedModel

PATIENT = """
[profile.patient]
limits = { steps = 1_000, wall_ms = 60_000 }
detectors = "production"
"""
ASKING = """
[[policy]]
tool = "append"
when = { line = "ask:*" }
action = "ask"
reason = "a person decides"
"""
"""A person is asked about each line that begins so."""
PATIENCE_S = 60
"""What a broken product has. The runs of these tests have half of it."""
Found = TypeVar("Found")


@pytest.fixture
async def client(module_daemon: TestedDaemon) -> AsyncIterator[AsyncClient]:
    """A connection to the module's daemon; at the end no run of the test is open, and no call."""
    async with AsyncClient(module_daemon.socket) as connected:
        yield connected
        assert [row.run for row in await connected.runs()] == []
        assert (await connected.status()).calls_in_flight == 0


async def driven(client: AsyncClient, model: ScriptedModel, **options: Any) -> Outcome:
    """A run that this model has steered to its end."""
    with trio.fail_after(PATIENCE_S):
        return await steer(client, "mend it", model, **{"deadline_ms": 30_000, **options})


async def steered(client: AsyncClient, *turns: Any, **options: Any) -> tuple[Outcome, ScriptedModel]:
    """The outcome, and the model with what it was asked."""
    model = ScriptedModel(*turns)
    return await driven(client, model, **options), model


class Steered:
    """What `steering` leaves behind; there when its block has ended."""

    outcome: Outcome
    model: ScriptedModel


@asynccontextmanager
async def steering(client: AsyncClient, *turns: Any, **options: Any) -> AsyncIterator[Steered]:
    """As `steered`, while the block does what other clients do; it ends when the run has."""
    left = Steered()

    async def work() -> None:
        left.outcome, left.model = await steered(client, *turns, **options)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        yield left


async def found(look: Callable[[], Awaitable[list[Found]]], count: int = 1) -> list[Found]:
    """What ``look`` finds, once it is so many or more; fails after half a minute."""
    with trio.fail_after(PATIENCE_S / 2):
        while len(those := await look()) < count:
            await trio.sleep(0.02)
    return those


async def asked(client: AsyncClient) -> ApprovalView:
    """The oldest question that is open, once there is one."""
    return (await found(client.approvals))[0]


async def run_that_is(status: str, client: AsyncClient) -> RunRow:
    """The one run of this status, once there is one."""

    async def look() -> list[RunRow]:
        return [row for row in await client.runs() if row.status == status]

    (row,) = await found(look)
    return row


async def events_of(run: AsyncRun) -> list[Event]:
    """Of a run that has stopped; their numbers have no gap."""
    events = [event async for event in run.events()]
    assert [event.data["run_seq"] for event in events] == list(range(1, len(events) + 1))
    return events


def told(request: Request) -> list[str]:
    """The results that a model reads."""
    return [message.text for message in request.messages if message.role == "tool"]
