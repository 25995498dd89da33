"""Models: arguments, names. What a model says is taken as it is meant or refused with its own words, and the run goes
on; the loop is the product's, the daemon and its workers are real."""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

import pytest
import trio

from deadlined.agent import Outcome, call, steer
from deadlined.async_client import AsyncClient
from supervisor.core.model_events import Request, ToolCall
from tests.contract.conftest import RUNS_TOOLS
from tests.supervisor.lines import ScriptedModel, says

pytestmark = pytest.mark.contract

CONFIG = f"""{RUNS_TOOLS}
[[policy]]
tool = "said"
when = {{ text = "ask:*" }}
action = "ask"
reason = "a person decides"
"""
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
    for fenced in ('```json\n{"number": 41}\n```', '```\n{"number": 41}\n```'):
        text, _ = await told(async_client, "page", fenced)
        assert "text of page 41" in text
    text, _ = await told(async_client, "said", json.dumps({"text": "```json\n{}\n```"}))
    assert r"0 False '```json\n{}\n```'" in text, "a fence inside of a value is a part of it"
    for other in ('Here: ```json\n{"number": 41}\n```', '```json\n{"number": 41}\n```\n```json\n{"number": 42}\n```'):
        text, outcome = await told(async_client, "page", other)
        assert "invalid_arguments" in text
        assert re.search(r"line \d column \d", text), "the parser's own words"
        assert "number" not in text.partition("[error")[2], "and no word of a property that is missing"
        assert outcome.stop.budgets["tool_calls"].used == 0


@pytest.mark.case("B121")
@pytest.mark.behaviour("M140")
@pytest.mark.parametrize("name", ["pages", "Page", "", "finish ", "p" * 10_000])
async def test_a_wrong_name_is_answered_with_the_right_ones_and_the_run_goes_on(
    async_client: AsyncClient, name: str
) -> None:
    text, outcome = await told(async_client, name, '{"number": 1}')
    assert "unknown_tool" in text
    assert "page" in re.findall(r"\w+", text)
    assert len(text) < 3_000
    assert outcome.stop.budgets["tool_calls"].used == 0


@pytest.mark.case("B126")
async def test_a_model_that_takes_the_nearest_name_out_of_its_error_needs_one_step(async_client: AsyncClient) -> None:
    def decide(request: Request) -> ToolCall | str:
        results = [message.text for message in request.messages if message.role == "tool"]
        if not results:
            return call("get_page", number=1)
        if "unknown_tool" not in results[-1]:
            return results[-1]
        names = [word for word in re.findall(r"\w+", results[-1]) if word != "get_page"]
        return call(next(iter(difflib.get_close_matches("get_page", names)), "get_page"), number=1)

    with trio.fail_after(60):
        stop = (await steer(async_client, "mend it", decide, deadline_ms=30_000)).stop
    assert (stop.status, stop.step) == ("completed", 3)
    assert "text of page 1" in (stop.answer or "")


@pytest.mark.case("B122")
@pytest.mark.parametrize(
    ("said", "name"), [('{"number": "5"}', "number"), ('{"number": "5.0"}', "number"), ('{"flag": "false"}', "flag")]
)
async def test_a_value_that_is_a_text_is_refused_by_its_name(async_client: AsyncClient, said: str, name: str) -> None:
    text, outcome = await told(async_client, "said", said)
    assert "invalid_arguments" in text
    assert name in text.partition("[error")[2]
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
    for number in (7310045586123000007, 2**64 - 1, -(2**63)):
        text, _ = await told(async_client, "said", f'{{"number": {number}}}')
        assert f"{number} False" in text
    for number in (123456789012345678901234567890, 2**64, 2**70, -(2**63) - 1):
        text, _ = await told(async_client, "page", f'{{"number": {number}}}')
        assert "outside" in text


@pytest.mark.case("B123")
async def test_numbers_that_differ_in_their_last_digit_are_other_calls_and_a_person_sees_the_one_that_runs(
    async_client: AsyncClient,
) -> None:
    first = 7310045586123000007
    turns = [says(call("said", number=number, text="ask: me")) for number in range(first, first + 4)]
    model, shown = ScriptedModel(*turns, DONE), list[Any]()
    async with trio.open_nursery() as nursery:

        async def person() -> None:
            while len(shown) < len(turns):
                for one in await async_client.approvals():
                    shown.append(json.loads(one.arguments)["number"])
                    await async_client.approve(one.approval)
                await trio.sleep(0.01)

        nursery.start_soon(person)
        with trio.fail_after(60):
            outcome = await steer(async_client, "mend it", model, deadline_ms=30_000)
    assert (outcome.stop.status, outcome.stop.detectors) == ("completed", [])
    assert shown == list(range(first, first + 4))
    results = [message.text for message in model.asked[-1].messages if message.role == "tool"]
    assert [f"{number} False" in text for number, text in zip(shown, results, strict=True)] == [True] * 4


@pytest.mark.case("B128")
async def test_a_tool_that_ends_without_a_word_has_a_result_with_its_call_its_name_and_a_reason(
    async_client: AsyncClient,
) -> None:
    hows = ["empty", "interrupt", "exit", "generator", "worker"]
    asked = [ToolCall(how, "breaks", json.dumps({"how": how})) for how in hows]
    model = ScriptedModel(says(*asked, ToolCall("good", "page", '{"number": 1}')), DONE)
    with trio.fail_after(60):
        outcome = await steer(async_client, "mend it", model, deadline_ms=30_000)
    assert outcome.stop.status == "completed"
    results = {message.answers: message.text for message in model.asked[1].messages if message.role == "tool"}
    assert list(results) == [*hows, "good"]
    assert "text of page 1" in results.pop("good")
    for text in results.values():
        assert re.search(r"\[breaks c_\w+: (error|crashed)", text)
        assert re.search(r"\[error \w+, \w+\] \S", text)


async def answers(client: AsyncClient) -> None:
    """Whatever is asked, once it is."""
    with trio.fail_after(60):
        while not (rows := [row for row in await client.runs() if row.status == "needs_input"]):
            await trio.sleep(0.01)
        await client.attach_run(rows[0].run).resume("this one")


@pytest.mark.case("B050")
@pytest.mark.case("B049")
async def test_one_strange_result_or_answer_spoils_nothing_after_it(async_client: AsyncClient) -> None:
    strange = ["half \ud800", "\x00\x1b[2J", "\u2028"]
    for text in strange:
        arguments = call("total", prices=[1], note="x").arguments.replace("x", text.replace("\x00", ""))
        turns: list[Any] = [
            says(ToolCall("a", "total", arguments)),
            says(call("shell", argv=["printf", r"\355\240\200\377\000x"])),
            says(call("half")),
            *[says(call("page", number=number)) for number in range(3)],
            says(call("ask_user", question=f"which {text}?")),
            says(text=text + "done"),
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answers, async_client)
            outcome = await steer(async_client, "mend it", ScriptedModel(*turns), deadline_ms=30_000)
        again = await steer(async_client, "again", ScriptedModel(DONE), deadline_ms=30_000, earlier=outcome.messages)
        assert (outcome.stop.status, again.stop.status) == ("completed", "completed")


@pytest.mark.case("B131")
@pytest.mark.behaviour("M138")
async def test_more_arguments_than_a_frame_holds_are_refused_and_end_nothing(async_client: AsyncClient) -> None:
    text, outcome = await told(async_client, "total", f'{{"prices": [1], "note": "{"x" * 2_000_000}"}}')
    assert "[error argument, invalid_arguments]" in text
    assert outcome.stop.budgets["tool_calls"].used == 0
