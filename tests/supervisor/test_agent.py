"""The shell of the loop with a line and a model of the test's own: what it asks, what it hears, and that whatever it
waits for ends with its run."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo, Status
from protocol._runs import RunReason, RunStatus
from supervisor.agent import LostRunError
from supervisor.clock import now_ns
from supervisor.core import turn_words as words
from supervisor.core.model_events import Gateway, Stop, Text, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.run_wishes import MOST_AMOUNT
from tests.supervisor.core.turning import ASKS, DONE, call, result, stop
from tests.supervisor.lines import ScriptedLine, ScriptedModel, agent_of, says

CANCELLED = stop(RunStatus.CANCELLED, RunReason.CLIENT)
PATIENCE_S = 20


def refuses(code: str) -> Any:
    return lambda _: cm.Failed(0, ErrorInfo(ErrorClass.ARGUMENT, code, f"{code} it is"))


async def steered(line: ScriptedLine, *turns: Any, **more: Any) -> ScriptedModel:
    model = ScriptedModel(*turns)
    with trio.fail_after(PATIENCE_S):
        await agent_of(line, model, **more).steer()
    return model


@pytest.mark.behaviour("M082")
@pytest.mark.behaviour("M144")
async def test_a_round_asks_charges_decides_calls_and_ends_by_asking_for_the_end() -> None:
    line = ScriptedLine()
    await steered(line, says(call("look", "a", n=1)), says(call("finish", answer="7")))
    round_ = ["StepRun", "ReserveModel", "SettleModel"]
    assert line.names() == [*round_, "Submit", *round_, "FinishRun"]
    (submit,) = line.of(cm.Submit)
    assert (submit.tool, submit.arguments, submit.run, submit.key, submit.decision) == (
        "look",
        '{"n": 1}',
        "r",
        "d_1.0",
        "d_1",
    )
    assert line.of(cm.FinishRun)[0].answer == "7"
    assert line.open == 0


@pytest.mark.behaviour("M076")
@pytest.mark.behaviour("M077")
@pytest.mark.behaviour("M078")
async def test_anything_with_a_name_that_streams_the_four_events_is_a_model() -> None:
    class Mine:
        model = "mine"

        async def stream(self, request: Any) -> Any:
            for event in (Text("it "), Text("is 7"), Usage(5, 2), Stop("end", "whatever it is called")):
                yield event

        async def aclose(self) -> None: ...

    mine: Gateway = Mine()
    line = ScriptedLine()
    with trio.fail_after(PATIENCE_S):
        assert await agent_of(line, mine).steer() == DONE
    assert line.of(cm.FinishRun)[0].answer == "it is 7"
    (settled,) = line.of(cm.SettleModel)
    assert (settled.tokens_in, settled.tokens_out) == (5, 2)
    assert line.of(cm.ReserveModel)[0].model == "mine"


async def test_calls_of_a_turn_are_under_way_together_and_told_in_their_order() -> None:
    both = trio.Event()

    async def slow(submit: cm.Submit) -> Any:
        if submit.tool == "look":
            await both.wait()
        return cm.Settled(0, result(submit.tool, name=submit.tool))

    line = ScriptedLine(Submit=slow)
    model = ScriptedModel(says(call("look", "a"), call("pay", "b")), says(text="done"))
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S
        nursery.start_soon(agent_of(line, model).steer)
        while len(line.of(cm.Submit)) < 2:
            await trio.sleep(0.001)
        both.set()
    told = [message.answers for message in model.asked[1].messages if message.role == "tool"]
    assert told == ["a", "b"]


@pytest.mark.behaviour("M025")
@pytest.mark.behaviour("M078")
async def test_a_model_that_says_nothing_is_cut_when_its_time_is_up_and_the_run_hears_that_it_was_spent() -> None:
    line = ScriptedLine(remaining_ms=20)
    told: list[Any] = []

    def second_time(ask: Any) -> Any:
        if len(line.of(cm.ReserveModel)) == 1:
            return cm.ModelReserved(0, "r", 1, 20)
        return cm.RunSettled(0, stop(reason=RunReason.TIME_BUDGET))

    line._special["ReserveModel"] = second_time
    model = await steered(line, trio.sleep_forever, tell=told.append)
    assert model.closed == 1, "and its stream was closed"
    assert words.Expired() in told
    assert line.of(cm.SettleModel)[0].tokens_in is None


@pytest.mark.behaviour("M024")
@pytest.mark.parametrize("what", ["decide", "backoff"])
async def test_whatever_it_waits_for_ends_with_its_run(what: str) -> None:
    line = ScriptedLine()
    turn: Any = trio.sleep_forever
    if what == "backoff":
        turn = ProviderFailure(FailureKind.HTTP_STATUS, 429, "", not_before_ns=_in_a_while())
    model = ScriptedModel(turn)
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S
        nursery.start_soon(agent_of(line, model).steer)
        while model.closed < 1 if what == "backoff" else not model.asked:
            await trio.sleep(0.001)
        line.settle(CANCELLED)
    assert not nursery.cancel_scope.cancelled_caught
    assert (model.closed, line.open) == (1, 0)


def _in_a_while() -> int:
    return now_ns() + 30_000_000_000


@pytest.mark.behaviour("M089")
@pytest.mark.behaviour("M165")
@pytest.mark.case("B119")
async def test_a_turn_that_ends_without_its_stop_is_asked_for_again_and_nothing_of_it_is_done() -> None:
    line = ScriptedLine()
    half = [Text("I pay"), call("pay", "a", n=1)]
    model = await steered(line, half, [], says(text="whole"))
    assert line.of(cm.Submit) == []
    assert line.of(cm.FinishRun)[0].answer == "whole", "and not what was said before"
    assert len(line.of(cm.RetryModel)) == 2
    assert [len(one.messages) for one in model.asked] == [len(model.asked[0].messages)] * 3


@pytest.mark.behaviour("M166")
async def test_a_model_that_raises_what_nobody_foresaw_ends_the_run_in_a_line() -> None:
    line = ScriptedLine()
    await steered(line, KeyError("choices"))
    (ask,) = line.of(cm.StopRun)
    assert (ask.reason, ask.detail) == ("permanent", "other: KeyError: 'choices'")


@pytest.mark.behaviour("M138")
async def test_what_a_model_says_that_it_used_is_no_more_than_can_be_and_no_less_than_nothing() -> None:
    line = ScriptedLine()
    await steered(
        line,
        says(call("look", "a"), usage=Usage(-5, 10**30, -1)),
        says(text="done", usage=Usage(3, 4, 2)),
    )
    used = [(one.tokens_in, one.tokens_out, one.cached_in) for one in line.of(cm.SettleModel)]
    assert used == [(0, MOST_AMOUNT, 0), (3, 4, 2)]


@pytest.mark.behaviour("M123")
async def test_a_question_is_asked_and_its_answer_is_read_in_the_log() -> None:
    line = ScriptedLine()
    model = ScriptedModel(says(call("ask_user", question="Which tenant?")), says(text="done"))
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S
        nursery.start_soon(agent_of(line, model).steer)
        while not line.of(cm.ReadEvents):
            await trio.sleep(0.001)
        for number in range(450):
            line.tell("budget_reserved", number=number)
        line.tell("run_resumed", answer="acme")
    assert "[a person answers] acme" in [message.text for message in model.asked[1].messages]
    assert line.of(cm.AskPerson)[0].question == "Which tenant?"


async def test_an_answer_at_the_end_of_a_page_of_the_log_is_not_waited_for_twice() -> None:
    line = ScriptedLine()
    for number in range(199):
        line.tell("budget_reserved", number=number)
    asked = iter(["asked"])

    def ask(_: Any) -> Any:
        next(asked)
        line.events[-1].kind = "run_suspended"
        line.tell("run_resumed", answer="acme")
        return cm.RunSettled(0, ASKS)

    line._special["AskPerson"] = ask
    with trio.move_on_after(5) as waited:
        await agent_of(line, ScriptedModel(says(call("ask_user", question="?")), says(text="done"))).steer()
    assert not waited.cancelled_caught


async def test_what_happens_in_other_runs_does_not_make_it_read_the_log_all_the_time() -> None:
    line = ScriptedLine(ReadEvents=lambda ask: cm.Events(0, [], ask.after + 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent_of(line, ScriptedModel(says(call("ask_user", question="?")))).steer)
        while not line.of(cm.ReadEvents):
            await trio.sleep(0.001)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert len(line.of(cm.ReadEvents)) < 10


async def test_a_run_that_ends_while_it_waits_for_a_person_is_over_for_the_loop() -> None:
    line = ScriptedLine()
    model = ScriptedModel(says(call("ask_user", question="Which tenant?")))
    agent = agent_of(line, model)
    stops: list[Any] = []

    async def steer() -> None:
        stops.append(await agent.steer())

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S
        nursery.start_soon(steer)
        while not line.of(cm.ReadEvents):
            await trio.sleep(0.001)
        line.settle(CANCELLED)
    assert stops == [CANCELLED]


@pytest.mark.behaviour("M086")
async def test_a_call_that_waits_is_asked_for_again_with_its_key_when_it_was_decided() -> None:
    answers = iter([Status.WAITING_FOR_APPROVAL, Status.OK])
    line = ScriptedLine(Submit=lambda ask: cm.Settled(0, result(ask.tool, next(answers), "c_1")))
    model = ScriptedModel(says(call("pay", "a", n=7)), says(text="done"))
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S
        nursery.start_soon(agent_of(line, model).steer)
        while not line.of(cm.ReadEvents):
            await trio.sleep(0.001)
        line.tell("call_validated", "c_1")
        line.tell("run_suspended")
        line.tell("run_resumed")
    first, second = line.of(cm.Submit)
    assert (first.key, first.arguments) == (second.key, second.arguments)
    assert len(model.asked) == 2, "no model was asked in between"


async def test_what_the_log_has_of_calls_before_is_no_sign_that_the_run_goes_on() -> None:
    answers = iter([("c_0", Status.OK), ("c_1", Status.WAITING_FOR_APPROVAL), ("c_2", Status.OK)])

    def answer(ask: cm.Submit) -> Any:
        name, status = next(answers)
        return cm.Settled(0, result(ask.tool, status, name))

    line = ScriptedLine(Submit=answer)
    for kind in ("call_validated", "call_ended"):
        line.tell(kind, "c_0")
    model = ScriptedModel(says(call("look", "a")), says(call("pay", "b", n=7)), says(text="done"))
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_S
        nursery.start_soon(agent_of(line, model).steer)
        while len(line.of(cm.ReadEvents)) < 2 and len(line.of(cm.Submit)) < 3:
            await trio.sleep(0.001)
        assert len(line.of(cm.Submit)) == 2, "it waits: that it is suspended has not come into the log"
        line.tell("run_suspended")
        line.tell("run_resumed")
    assert [ask.key for ask in line.of(cm.Submit)] == ["d_1.0", "d_2.0", "d_2.0"]
    assert len(model.asked) == 3


@pytest.mark.case("B128")
async def test_a_call_that_the_daemon_does_not_take_has_a_result_with_its_reason() -> None:
    line = ScriptedLine(Submit=refuses("overloaded"))
    model = await steered(line, says(call("look", "a")), says(text="done"))
    (told,) = [message for message in model.asked[1].messages if message.role == "tool"]
    assert told.answers == "a"
    assert "[look : not_executed" in told.text
    assert "overloaded it is" in told.text


async def test_a_run_that_nobody_knows_any_more_is_said_to_be_lost() -> None:
    with pytest.raises(LostRunError, match="unknown_run it is"):
        await steered(ScriptedLine(WaitRun=refuses("unknown_run")), trio.sleep_forever)


async def test_what_breaks_the_line_is_raised_as_it_is() -> None:
    async def broken(_: Any) -> Any:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await steered(ScriptedLine(WaitRun=broken, StepRun=broken))


async def test_cancelled_it_asks_nothing_more_and_leaves_nothing_running() -> None:
    line = ScriptedLine()
    model = ScriptedModel(trio.sleep_forever)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent_of(line, model).steer)
        while not model.asked:
            await trio.sleep(0.001)
        before = len(line.asked)
        nursery.cancel_scope.cancel()
    assert (model.closed, line.open, len(line.asked)) == (1, 0, before)
