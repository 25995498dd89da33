"""A decision function in the place of a model: what it may return, and that nobody waits for it for ever."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest
import trio

from deadlined._decisions import FunctionGateway
from deadlined.agent import Request, ToolCall, Turn, call
from supervisor.core.model_events import Gateway, Stop, Text, Usage


async def said(decide: Any) -> list[Any]:
    return [event async for event in FunctionGateway(decide).stream(Request([]))]


async def later(request: Request) -> str:
    await trio.lowlevel.checkpoint()
    return "it is 7"


class Object:
    async def __call__(self, request: Request) -> str:
        return await later(request)


@pytest.mark.behaviour("M076")
@pytest.mark.parametrize(
    "decide", [lambda _: "it is 7", lambda _: Turn("it is 7"), later, functools.partial(later), Object()]
)
async def test_a_text_is_an_answer_however_it_is_made(decide: Any) -> None:
    assert await said(decide) == [Text("it is 7"), Usage(0, 0), Stop("end")]


@pytest.mark.behaviour("M077")
async def test_calls_become_a_turn_that_waits_for_their_results() -> None:
    look = call("look", path="/é", n=2**60)
    assert look.arguments == '{"path": "/é", "n": 1152921504606846976}'
    for decision in (look, [look], Turn(calls=[look])):
        events = await said(lambda _, decision=decision: decision)
        assert events == [ToolCall("call_0", "look", look.arguments), Usage(0, 0), Stop("tools")]
    events = await said(lambda _: Turn("two", [ToolCall("a", "look", ""), look], 5, 2))
    assert [event.id for event in events if isinstance(event, ToolCall)] == ["a", "call_1"]
    assert events[-2:] == [Usage(5, 2), Stop("tools")]


async def test_what_is_no_decision_and_what_is_no_argument_is_said_so() -> None:
    with pytest.raises(TypeError, match="and not int"):
        await said(lambda _: 7)
    with pytest.raises(ValueError, match="JSON"):
        call("look", n=float("nan"))


@pytest.mark.parametrize(
    ("decision", "where"),
    [
        (ToolCall("", "look", {"n": 1}), "calls"),  # type: ignore[arg-type]  # what people write
        (["look"], "calls"),
        (Turn(calls=None), "calls"),  # type: ignore[arg-type]  # as above
        (Turn(7), "text"),  # type: ignore[arg-type]  # as above
        (Turn("7", tokens_in=None), "tokens_in"),  # type: ignore[arg-type]  # as above
    ],
)
async def test_a_decision_of_other_types_is_refused_before_anything_is_done_of_it(decision: Any, where: str) -> None:
    with pytest.raises(TypeError, match=where):
        await said(lambda _: decision)


@pytest.mark.behaviour("M025")
async def test_nobody_waits_for_a_function_that_hangs() -> None:
    begun, over = threading.Event(), threading.Event()

    def hangs(_: Request) -> str:
        begun.set()
        over.wait(60)
        return ""

    with trio.move_on_after(0.05) as waited:
        await said(hangs)
    over.set()
    assert waited.cancelled_caught
    assert begun.is_set()


def test_it_is_a_model_like_any_other() -> None:
    assert isinstance(FunctionGateway(lambda _: ""), Gateway)
