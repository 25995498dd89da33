"""Loops that wait for a person, row by row, with the product's own: what is asked is done once, as it was answered, and
nothing is done that nobody allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deadlined.agent import call
from deadlined.async_client import AsyncClient
from tests.contract.agents.conftest import ASKING, PATIENT, asked, events_of, found, run_that_is, steering, told
from tests.contract.conftest import RUNS_TOOLS
from tests.supervisor.lines import says

pytestmark = pytest.mark.contract

CONFIG = RUNS_TOOLS + PATIENT + ASKING


@pytest.mark.behaviour("M091")
@pytest.mark.behaviour("M074")
async def test_a_call_that_was_made_under_a_key_is_not_made_again_by_whoever_delivers_it(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    append = call("append", path=str(file), line="ask: once")
    turns = [says(append), says(call("finish", answer="written"))]
    async with steering(client, *turns) as loop:
        approval = await asked(client)
        await client.approve(approval.approval)
    outcome, model = loop.outcome, loop.model
    assert outcome.stop.status == "completed"
    assert file.read_text(encoding="utf-8") == "ask: once\n"
    assert len(model.asked) == 2, "nobody planned anew"
    assert "append c_" in told(model.asked[1])[0]
    kinds = [event.kind for event in await events_of(client.attach_run(outcome.stop.run))]
    assert (kinds.count("approval_asked"), kinds.count("approval_consumed")) == (1, 1)
    again = await client.call("append", json.loads(append.arguments), run=outcome.stop.run, key="d_1.0")
    assert (again.status, again.replayed) == ("ok", True)
    assert file.read_text(encoding="utf-8") == "ask: once\n"


@pytest.mark.behaviour("M086")
async def test_questions_of_one_turn_are_answered_one_by_one_and_each_call_is_made_once(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    lines = ["ask: one", "ask: two", "ask: three"]
    turn = says(
        call("page", number=1), *[call("append", path=str(file), line=line) for line in lines], call("naps", ms=300)
    )
    async with steering(client, turn, says(call("finish", answer="written"))) as loop:
        early = await asked(client)  # while a sibling of it is still at work
        await client.approve(early.approval)
        refused, allowed = await found(client.approvals, 2)
        await client.reject(refused.approval, note="not this one")
        await client.approve(allowed.approval)
    outcome, model = loop.outcome, loop.model
    assert outcome.stop.status == "completed"
    rejected = json.loads(refused.arguments)["line"]
    assert sorted(file.read_text(encoding="utf-8").splitlines()) == sorted(set(lines) - {rejected})
    results = told(model.asked[1])
    assert len(results) == 5
    assert ["not this one" in result for result in results].count(True) == 1
    assert len(model.asked) == 2


@pytest.mark.behaviour("M092")
@pytest.mark.behaviour("M117")
async def test_a_tool_that_wrote_and_never_said_so_is_not_run_again_and_is_listed(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    stall = call("append_and_stall", path=str(file), line="once")
    async with steering(client, says(stall), says(stall)) as loop:
        row = await run_that_is("waiting_for_approval", client)
        assert row.reason == "reconcile_required"
        await client.attach_run(row.run).cancel()
    stop, results = loop.outcome.stop, told(loop.model.asked[1])
    assert stop.status == "cancelled"
    assert [effect.tool for effect in stop.unresolved_effects] == ["append_and_stall"]
    assert "delivery unknown" in results[0]
    assert file.read_text(encoding="utf-8") == "once\n"


@pytest.mark.behaviour("M094")
@pytest.mark.behaviour("M121")
async def test_a_run_that_is_cancelled_while_a_person_is_asked_does_nothing_and_no_answer_changes_that(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    async with steering(client, says(call("append", path=str(file), line="ask: me"))) as loop:
        approval = await asked(client)
        await client.attach_run(approval.run).cancel()
    assert loop.outcome.stop.status == "cancelled"
    assert "not executed" in loop.outcome.messages[-1].text
    with pytest.raises(Exception, match="void"):
        await client.approve(approval.approval)
    assert not file.exists()


@pytest.mark.behaviour("M123")
async def test_what_is_missing_is_asked_for_and_the_answer_goes_to_the_model(client: AsyncClient) -> None:
    turns = [says(call("ask_user", question="Which tenant?")), says(call("finish", answer="acme's"))]
    async with steering(client, *turns) as loop:
        run = client.attach_run((await run_that_is("needs_input", client)).run)
        stop = (await run.view()).stop
        assert stop is not None
        assert (stop.reason, stop.detail) == ("missing_parameter", "Which tenant?")
        await run.resume("acme")
    outcome, model = loop.outcome, loop.model
    assert outcome.stop.answer == "acme's"
    assert told(model.asked[1]) == ["[a person answers] acme"]


@pytest.mark.behaviour("M095")
@pytest.mark.behaviour("M141")
async def test_what_a_person_has_allowed_is_in_sight_when_all_that_was_said_then_is_not(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    turns = [
        says(call("append", path=str(file), line="ask: the one")),
        *[says(call("page", number=number)) for number in range(14)],
        says(call("finish", answer="done")),
    ]
    async with steering(client, *turns, profile="patient", constraints=["spend nothing"]) as loop:
        approval = await asked(client)
        await client.approve(approval.approval, note="this line and no other")
    outcome, model = loop.outcome, loop.model
    assert outcome.stop.status == "completed"
    last = model.asked[-1].messages
    assert not [message for message in last if message.role == "tool" and "ask: the one" in message.text]
    assert "this line and no other" in last[1].text
    assert "spend nothing" in last[1].text
    assert "ask: the one" in last[1].text
    assert len(last) < 30
