"""Models: arguments, names. What a model says is taken as it is meant or refused with its own words, and the run goes
on; the loop is the product's, the daemon and its workers are real."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from deadlined.agent import Outcome, call, steer
from deadlined.async_client import AsyncClient
from supervisor.core.model_events import ToolCall
from tests.contract.conftest import RUNS_TOOLS
from tests.supervisor.lines import ScriptedModel, says

pytestmark = pytest.mark.contract

CONFIG = RUNS_TOOLS
DONE = says(call("finish", answer="done"))


async def told(client: AsyncClient, tool: str, arguments: str) -> tuple[str, Outcome]:
    """What a model reads after this call; the run has ended well in any case."""
    model = ScriptedModel(says(ToolCall("a", tool, arguments)), DONE)
    with trio.fail_after(60):
        outcome = await steer(client, "mend it", model, deadline_ms=30_000)
    assert outcome.stop.status == "completed"
    (text,) = [message.text for message in model.asked[1].messages if message.role == "tool"]
    return text, outcome


@pytest.mark.case("B120")
@pytest.mark.behaviour("M139")
async def test_arguments_in_a_fence_are_unwrapped_or_refused_with_their_text(async_client: AsyncClient) -> None:
    text, _ = await told(async_client, "page", '```json\n{"number": 41}\n```')
    assert "text of page 41" in text
    text, outcome = await told(async_client, "page", 'Here: ```json\n{"number": 41}\n```')
    assert "invalid_arguments" in text
    assert "line 1 column 1" in text, "the parser's own words"
    assert "number" not in text.partition("[error")[2], "and no word of a property that is missing"
    assert outcome.stop.budgets["tool_calls"].used == 0


@pytest.mark.case("B121")
@pytest.mark.case("B126")
@pytest.mark.behaviour("M140")
async def test_a_wrong_name_is_answered_with_the_right_ones_and_the_run_goes_on(async_client: AsyncClient) -> None:
    text, outcome = await told(async_client, "pages", '{"number": 1}')
    assert "unknown_tool" in text
    assert "page" in text.replace("pages", "")
    assert outcome.stop.budgets["tool_calls"].used == 0


@pytest.mark.case("B122")
async def test_a_list_that_is_a_text_is_refused_by_its_name_and_a_text_that_looks_like_a_list_stays_one(
    async_client: AsyncClient,
) -> None:
    text, _ = await told(async_client, "total", '{"prices": "[1, 2]", "note": "x"}')
    assert "invalid_arguments" in text
    assert "prices" in text
    text, _ = await told(async_client, "total", '{"prices": [1, 2], "note": "[1, 2, \\"0042\\"]"}')
    assert '3 [1, 2, "0042"]' in text


@pytest.mark.case("B123")
async def test_whole_numbers_come_through_exact_or_are_refused(async_client: AsyncClient) -> None:
    text, _ = await told(async_client, "page", '{"number": 9007199254740993}')
    assert "text of page 9007199254740993" in text
    text, outcome = await told(async_client, "page", '{"number": 1234567890123456789}')
    assert "text of page 1234567890123456789" in text
    (asked,) = [one.arguments for message in outcome.messages for one in message.calls if one.name == "page"]
    assert asked == '{"number": 1234567890123456789}', "nor does the model see another number as its own"
    text, _ = await told(async_client, "page", '{"number": 123456789012345678901234567890}')
    assert "outside" in text


@pytest.mark.case("B050")
@pytest.mark.case("B049")
async def test_one_strange_result_or_answer_spoils_nothing_after_it(async_client: AsyncClient) -> None:
    strange = ["half \ud800", "\x00\x1b[2J", "\u2028"]
    for text in strange:
        arguments = call("total", prices=[1], note="x").arguments.replace("x", text.replace("\x00", ""))
        turns: list[Any] = [
            says(ToolCall("a", "total", arguments)),
            says(call("shell", argv=["printf", r"\355\240\200\377\000x"])),
            says(text=text + "done"),
        ]
        outcome = await steer(async_client, "mend it", ScriptedModel(*turns), deadline_ms=30_000)
        again = await steer(async_client, "again", ScriptedModel(DONE), deadline_ms=30_000, earlier=outcome.messages)
        assert (outcome.stop.status, again.stop.status) == ("completed", "completed")


@pytest.mark.case("B131")
@pytest.mark.behaviour("M138")
async def test_more_arguments_than_a_frame_holds_are_refused_and_end_nothing(async_client: AsyncClient) -> None:
    text, outcome = await told(async_client, "total", f'{{"prices": [1], "note": "{"x" * 2_000_000}"}}')
    assert "[error argument, invalid_arguments]" in text
    assert outcome.stop.budgets["tool_calls"].used == 0
