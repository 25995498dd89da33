"""Agents that the daemon steers itself, with scripts for models: over a question, an approval and a restart each goes
on where it was, and none outlives its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from deadlined import ConnectionLost, RequestRefused
from deadlined.agent import run_agent, steer
from deadlined.async_client import AsyncClient
from deadlined.async_runs import AsyncRun
from protocol import _client_messages as cm
from protocol._runs import AgentOptions, StopRecord
from tests.contract.agents.conftest import ASKING, events_of
from tests.contract.conftest import RUNS_TOOLS, TestedDaemon
from tests.supervisor.lines import ScriptedModel

pytestmark = pytest.mark.contract

CONFIG = RUNS_TOOLS + ASKING
SILENT = [{"silent": True}]


class Scripts:
    """Writes scripts, and opens runs that are steered by them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0

    async def open(self, client: AsyncClient, turns: list[dict[str, Any]], **options: Any) -> AsyncRun:
        self._count += 1
        file = self._directory / f"script{self._count}.jsonl"
        file.write_text("".join(json.dumps(turn) + "\n" for turn in turns), encoding="utf-8")
        options = {"goal": "mend it", "deadline_ms": 60_000, "on_disconnect": "keep", **options}
        return await client._opened(cm.OpenRun(0, agent=AgentOptions(model=f"scripted:{file}"), **options))


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


def asks(tool: str, **arguments: Any) -> dict[str, Any]:
    """A turn with one call."""
    return {"calls": [{"tool": tool, "arguments": arguments}]}


async def ended(run: AsyncRun) -> StopRecord:
    """Its last stop, whatever it waited for before."""
    with trio.fail_after(60):
        answer = await run._client._line.answered(cm.WaitRun(0, run.id, settled=True))
    return answer.outcome(cm.RunSettled).stop


async def waits(run: AsyncRun) -> StopRecord:
    with trio.fail_after(30):
        return await run.wait()


@pytest.mark.behaviour("M085")
@pytest.mark.behaviour("M144")
async def test_a_task_is_worked_on_by_the_daemon_while_nobody_steers(client: AsyncClient, scripts: Scripts) -> None:
    turns = [asks("page", number=1), asks("finish", answer="text of page 1")]
    run = await scripts.open(client, turns)
    stop = await ended(run)
    assert (stop.status, stop.reason, stop.answer) == ("completed", "finish_accepted", "text of page 1")
    events = await events_of(run)
    kinds = [event.kind for event in events]
    order = ["step_begun", "decide_started", "decide_ended", "call_validated", "call_ended", "run_settled"]
    places = [kinds.index(kind) for kind in order]
    assert places == sorted(places)
    (validated,) = [event for event in events if event.kind == "call_validated"]
    assert validated.call is not None
    decision = (await client.handle(validated.call).wait()).decision
    assert decision == validated.data["decision"] == "d_1"


async def test_a_model_that_is_not_there_is_said_before_anything_begins(client: AsyncClient) -> None:
    with pytest.raises(RequestRefused, match="where the daemon runs: 'nosuch:model' names no model") as refused:
        await client._opened(cm.OpenRun(0, goal="x", agent=AgentOptions(model="nosuch:model")))
    assert refused.value.error.code == "no_model"


@pytest.mark.behaviour("M025")
@pytest.mark.behaviour("M036")
async def test_a_model_that_never_answers_ends_with_the_runs_time(client: AsyncClient, scripts: Scripts) -> None:
    run = await scripts.open(client, SILENT, deadline_ms=1_000)
    stop = await ended(run)
    assert (stop.status, stop.reason, stop.phase) == ("budget_exhausted", "time_budget", "decide")


async def test_a_run_goes_with_its_client_or_by_cancel_and_its_agent_with_it(
    module_daemon: TestedDaemon, client: AsyncClient, scripts: Scripts
) -> None:
    kept = await scripts.open(client, SILENT)
    async with AsyncClient(module_daemon.socket) as other:
        lost = await scripts.open(other, SILENT, on_disconnect="cancel")
    assert (await ended(client.attach_run(lost.id))).reason == "disconnect"
    assert (await kept.view()).status == "running"
    assert (await kept.cancel()).status == "cancelled"


@pytest.mark.behaviour("M086")
@pytest.mark.behaviour("M117")
@pytest.mark.behaviour("M125")
@pytest.mark.behaviour("M123")
async def test_whoever_waited_for_a_person_goes_on_in_the_next_life_and_does_nothing_twice(
    start_daemon: Callable[..., TestedDaemon], scripts: Scripts, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    first = start_daemon(CONFIG)
    async with AsyncClient(first.socket) as client:
        writes = asks("append", path=str(file), line="before")
        approves = asks("append", path=str(file), line="ask: may I")
        writing = await scripts.open(
            client, [writes, approves, asks("append", path=str(file), line="after"), asks("finish", answer="written")]
        )
        asking = await scripts.open(
            client,
            [asks("page", number=1), asks("ask_user", question="Which?"), {"text": "that one", "when": "the red"}],
        )
        thinking = await scripts.open(client, SILENT)
        assert (await waits(writing)).status == "waiting_for_approval"
        assert (await waits(asking)).status == "needs_input"
    first.process.terminate()
    first.process.wait(20)
    second = start_daemon(CONFIG, after=first)
    async with AsyncClient(second.socket) as client:
        assert (await ended(client.attach_run(thinking.id))).status == "cancelled"
        (approval,) = await client.approvals()
        await client.approve(approval.approval)
        await client.attach_run(asking.id).resume("the red one")
        written, answered = [await ended(client.attach_run(run.id)) for run in (writing, asking)]
        assert (written.status, written.answer) == ("completed", "written")
        assert (answered.status, answered.answer) == ("completed", "that one")
        assert file.read_text(encoding="utf-8") == "before\nask: may I\nafter\n"
        decisions = [
            event.data["decision"]
            for event in await events_of(client.attach_run(writing.id))
            if event.kind == "call_validated"
        ]
        assert len(set(decisions)) == 3, "no decision has the name of another"
        model = ScriptedModel(trio.sleep_forever)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_steer_until_it_is_lost, client, model)
            with trio.fail_after(30):
                while not model.asked:
                    await trio.sleep(0.01)
            second.kill()
        assert model.closed == 1


async def _steer_until_it_is_lost(client: AsyncClient, model: ScriptedModel) -> None:
    """A loop in a program whose daemon dies hears just that, and its model is asked no more."""
    with pytest.raises(ConnectionLost):
        await steer(client, "mend it", model)


def test_a_loop_is_a_function_that_is_called(module_daemon: TestedDaemon) -> None:
    outcome = run_agent("how many?", lambda request: f"{len(request.tools)} tools", socket=module_daemon.socket)
    assert (outcome.stop.status, outcome.stop.reason) == ("completed", "final_text")
    assert outcome.messages[-1].text == outcome.stop.answer
