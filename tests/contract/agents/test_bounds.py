"""What bounds a loop, row by row, with the product's own: its time, its budgets, the failures of its model, its loops.
Whatever the model says, the bounds are the daemon's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio

from deadlined.agent import call
from deadlined.async_client import AsyncClient
from protocol._events import Event
from supervisor.core.briefing import WRAP_UP
from supervisor.core.model_events import ModelError, Request, Stop, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.retry import DEMO, RetrySettings
from supervisor.core.turn_words import Terms
from tests.contract.agents.conftest import PATIENT, driven, events_of, run_that_is, steered, steering, told
from tests.contract.conftest import RUNS_TOOLS
from tests.supervisor.lines import ScriptedModel, says

pytestmark = pytest.mark.contract

HERE = Path(__file__).parent
CONFIG = f"""{RUNS_TOOLS}{PATIENT}
[tenant.default]
session_limits = {{ tokens_total = 15_000 }}
"""
LIMITED = ProviderFailure(FailureKind.HTTP_STATUS, 429, "slow down")
SMALL = Terms(max_out=16)
TINY = Usage(10, 5)


class Endless(ScriptedModel):
    """Says the same for ever; ``$n`` in it is the number of the time."""

    def __init__(self, tool: str, arguments: str, usage: Usage | None = None) -> None:
        super().__init__()
        self._tool, self._arguments, self._usage = tool, arguments, usage

    async def stream(self, request: Request) -> Any:
        arguments = self._arguments.replace("$n", str(len(self.asked)))
        if not request.tools:
            self.turns = [says(text="what is known so far")]
        else:
            tool = self._tool.replace("$n", str(len(self.asked)))
            self.turns = [says(ToolCall("", tool, arguments), usage=self._usage)]
        async for event in super().stream(request):
            yield event


# ---------------------------------------------------------------- time


@pytest.mark.behaviour("M036")
@pytest.mark.behaviour("M021")
@pytest.mark.behaviour("M025")
@pytest.mark.behaviour("M026")
@pytest.mark.behaviour("M040")
@pytest.mark.parametrize("phase", ["decide", "tool", "complete"])
async def test_a_short_budget_ends_a_phase_that_hangs_and_says_which(client: AsyncClient, phase: str) -> None:
    turns = {
        "decide": trio.sleep_forever,
        "tool": says(call("spins_in_c")),
        "complete": says(call("finish", answer="done")),
    }
    checks = ["sleep 600"] if phase == "complete" else []
    budget = {"decide": 300, "tool": 1_500, "complete": 1_000}[phase]  # time to come so far on a busy machine
    outcome, model = await steered(client, turns[phase], deadline_ms=budget, checks=checks, wrapup=False)
    stop = outcome.stop
    assert (stop.status, stop.reason, stop.phase) == ("budget_exhausted", "time_budget", phase)
    assert stop.deadline.deadline_ms == budget
    assert len(model.asked) == 1
    ended = [event for event in await events_of(client.attach_run(outcome.stop.run)) if event.kind == "call_ended"]
    if phase == "tool":
        (call_id,) = [event.call for event in ended]
        assert call_id is not None
        result = await client.handle(call_id).wait()
        assert (result.status, result.reason, result.exit and result.exit.signal) == (
            "killed",
            "time_budget",
            "SIGKILL",
        )
    assert (await client.status()).calls_in_flight == 0


@pytest.mark.behaviour("M037")
@pytest.mark.behaviour("M035")
async def test_a_tool_has_what_the_decision_before_it_has_left(client: AsyncClient) -> None:
    async def thinks() -> Any:
        await trio.sleep(1.2)
        return says(call("spins_in_c"))

    outcome, _ = await steered(client, thinks, deadline_ms=2_000, wrapup=False)
    assert (outcome.stop.reason, outcome.stop.phase) == ("time_budget", "tool")
    (ended,) = [event for event in await events_of(client.attach_run(outcome.stop.run)) if event.kind == "call_ended"]
    assert ended.call is not None
    result = await client.handle(ended.call).wait()
    assert result.timing.deadline_ms <= 800
    assert result.exit is not None
    assert result.exit.signal == "SIGKILL"


@pytest.mark.behaviour("M053")
async def test_two_seconds_are_two_seconds_though_the_model_goes_on_and_on(client: AsyncClient) -> None:
    async def slowly() -> Any:
        await trio.sleep(0.1)
        return says(call("now"))

    outcome, _ = await steered(client, *[slowly] * 100, deadline_ms=2_000, profile="patient", wrapup=False)
    assert (outcome.stop.status, outcome.stop.reason) == ("budget_exhausted", "time_budget")
    assert outcome.stop.step < 25


# ---------------------------------------------------------------- budgets, and what is left to say


@pytest.mark.behaviour("M012")
@pytest.mark.behaviour("M102")
@pytest.mark.behaviour("M106")
@pytest.mark.behaviour("M133")
@pytest.mark.behaviour("M134")
async def test_at_its_last_step_a_run_says_what_is_known_and_what_would_help(client: AsyncClient) -> None:
    model = Endless("page", '{"number": $n}')
    outcome = await driven(client, model, limits={"steps": 3})
    stop = outcome.stop
    assert (stop.status, stop.reason, stop.step) == ("budget_exhausted", "step_budget", 3)
    assert (stop.answer, stop.advice) == ("what is known so far", "larger_budget")
    assert stop.partial[-1].startswith("page: ok: text of page 2")
    assert len(model.asked) == 4
    assert (model.asked[-1].tools, model.asked[-1].messages[-1].text) == ((), WRAP_UP)


@pytest.mark.behaviour("M055")
async def test_of_too_much_output_a_model_is_shown_the_cut_view_in_every_turn_and_nothing_else(
    client: AsyncClient,
) -> None:
    turns = [says(call("shell", argv=["seq", "1", "20000"])), says(call("now")), says(text="it counts")]
    outcome, model = await steered(client, *turns)
    assert outcome.stop.status == "completed"
    for request in model.asked[1:]:
        everything = "\n".join(message.text for message in request.messages)
        assert len(everything.encode()) < 16_000, "of 108 894"
        assert len(re.findall(r"^\[… left out: \d+ bytes in \d+ lines", everything, re.MULTILINE)) == 1
        assert "\n20000\n" in everything
        assert "\n10000\n" not in everything


@pytest.mark.behaviour("M173")
async def test_fifteen_rounds_are_the_most_of_a_demo_and_it_says_so(client: AsyncClient) -> None:
    outcome = await driven(client, Endless("now", "{}", TINY), profile="demo", wrapup=False)
    assert (outcome.stop.reason, outcome.stop.step) == ("step_budget", 15)
    assert "15" in outcome.stop.text


@pytest.mark.behaviour("M149")
@pytest.mark.behaviour("M168")
@pytest.mark.behaviour("M169")
async def test_three_queries_fit_into_a_sessions_tokens_and_the_fourth_does_not(client: AsyncClient) -> None:
    used = Usage(4_000, 500)
    tokens = []
    earlier: list[Any] = []
    for query in range(4):
        outcome, _ = await steered(
            client, says(text="it is 7", usage=used), session="queries", terms=SMALL, earlier=earlier, wrapup=False
        )
        earlier = outcome.messages
        view = outcome.stop.budgets["tokens_total"]
        tokens.append((outcome.stop.status, outcome.stop.reason, view.used))
        assert query < 3 or len(earlier) > 3
    assert [status for status, _, _ in tokens] == ["completed"] * 3 + ["budget_exhausted"]
    assert tokens[3][1] in ("token_budget", "tenant_budget")
    assert [spent for _, _, spent in tokens[:3]] == [4_500] * 3


# ---------------------------------------------------------------- models that fail


def waits_of(events: list[Event]) -> list[int]:
    """Before each further attempt at a model, as the log has them."""
    return [event.data["delay_ms"] for event in events if event.kind == "retry_scheduled"]


@pytest.mark.behaviour("M167")
async def test_two_refusals_and_the_third_attempt_is_the_answer(client: AsyncClient) -> None:
    outcome, model = await steered(client, LIMITED, LIMITED, says(text="it is 7"), terms=Terms(retry=DEMO))
    assert (outcome.stop.status, outcome.stop.answer, len(model.asked)) == ("completed", "it is 7", 3)
    first, second = waits_of(await events_of(client.attach_run(outcome.stop.run)))
    assert 375 <= first <= 625
    assert 750 <= second <= 1_250
    assert outcome.stop.budgets["steps"].used == 1
    assert outcome.stop.budgets["retries"].used == 2


@pytest.mark.behaviour("M165")
@pytest.mark.case("B124")
async def test_a_provider_that_refuses_for_ever_is_asked_again_three_times_and_each_time_later(
    client: AsyncClient,
) -> None:
    steady = Terms(retry=RetrySettings(3, 20, 1_000, 1, 1))
    outcome, model = await steered(client, *[LIMITED] * 9, terms=steady, wrapup=False)
    assert (outcome.stop.status, outcome.stop.reason) == ("provider_failed", "transient_exhausted")
    assert len(model.asked) == 4
    assert waits_of(await events_of(client.attach_run(outcome.stop.run))) == [20, 40, 80]


@pytest.mark.case("B107")
async def test_a_provider_that_is_silent_each_time_takes_no_longer_than_the_run_and_every_attempt_is_in_its_log(
    client: AsyncClient,
) -> None:
    async def silent() -> Any:
        await trio.sleep(0.4)
        raise ModelError(ProviderFailure(FailureKind.TIMEOUT, message="silent"))

    often = Terms(retry=RetrySettings(9, 10, 10, 1, 1))
    outcome, model = await steered(client, *[silent] * 10, terms=often, deadline_ms=1_500, wrapup=False)
    ends = {("budget_exhausted", "time_budget"), ("provider_failed", "transient_exhausted")}
    assert (str(outcome.stop.status), str(outcome.stop.reason)) in ends, "the latter where no time is left for another"
    assert 2 <= len(model.asked) <= 4
    events = await events_of(client.attach_run(outcome.stop.run))
    begun = [event.at_ms for event in events if event.kind == "decide_started"]
    assert len(begun) == len(model.asked)
    assert begun[-1] - events[0].at_ms < 1_500, "none begins that has no time"
    assert waits_of(events) == [10] * (len(model.asked) - 1)


@pytest.mark.behaviour("M089")
@pytest.mark.behaviour("M166")
@pytest.mark.behaviour("M093")
@pytest.mark.case("B118")
@pytest.mark.case("B119")
async def test_a_stream_that_ends_in_the_middle_of_arguments_does_nothing_and_is_asked_for_anew(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    whole = call("append", path=str(file), line="once").arguments
    cut: list[Any] = [
        [Text("I write "), ToolCall("a", "append", whole)],  # whole, and then nothing
        [ToolCall("a", "append", whole), ToolCall("b", "append", whole[:-4]), Stop("tools")],
    ]
    turns = [*cut, says(ToolCall("a", "append", whole)), says(call("finish", answer="written"))]
    outcome, model = await steered(client, *turns, terms=Terms(retry=RetrySettings(3, 20, 100)))
    assert outcome.stop.status == "completed"
    assert file.read_text(encoding="utf-8") == "once\n"
    assert all("I write" not in message.text for request in model.asked for message in request.messages)


@pytest.mark.behaviour("M083")
@pytest.mark.behaviour("M122")
@pytest.mark.behaviour("M042")
async def test_each_way_to_fail_has_a_status_of_its_own(client: AsyncClient) -> None:
    denied = ProviderFailure(FailureKind.HTTP_STATUS, 401, "no such key")
    ends = {}
    for name, turns in {
        "decide": [denied],
        "stream": [[Text("half")]] * 3,
        "tool": [says(*[call(f"made_up_{number}") for number in range(6)])],
        "policy": [says(call("read_file", path="/etc/passwd"))],
    }.items():
        outcome, _ = await steered(
            client, *turns, workspace=str(HERE), terms=Terms(retry=RetrySettings(2, 10, 20)), wrapup=False
        )
        ends[name] = (outcome.stop.status, outcome.stop.reason)
    assert ends == {
        "decide": ("provider_failed", "auth"),
        "stream": ("provider_failed", "stream_incomplete"),
        "tool": ("tool_failed", "unknown_tool"),
        "policy": ("blocked", "sandbox_denied"),
    }


@pytest.mark.behaviour("M083")
@pytest.mark.behaviour("M024")
async def test_a_run_that_somebody_cancels_while_its_model_thinks_is_over_at_once(client: AsyncClient) -> None:
    thinking = trio.Event()

    async def thinks() -> Any:
        thinking.set()
        await trio.sleep_forever()

    async with steering(client, thinks) as loop:
        await thinking.wait()
        await client.attach_run((await run_that_is("running", client)).run).cancel()
    stop = loop.outcome.stop
    assert (stop.status, stop.reason) == ("cancelled", "client")
    assert (len(loop.model.asked), loop.model.closed) == (1, 1), "its stream is closed"


# ---------------------------------------------------------------- names that are no tool's, and loops


@pytest.mark.behaviour("M140")
@pytest.mark.case("B126")
async def test_a_name_that_is_no_tool_is_answered_with_those_that_are_and_the_run_goes_on(client: AsyncClient) -> None:
    turns = [says(call("pge", number=1)), says(call("page", number=1)), says(call("finish", answer="text of page 1"))]
    outcome, model = await steered(client, *turns)
    assert outcome.stop.status == "completed"
    assert "unknown_tool" in told(model.asked[1])[0]
    assert "page" in told(model.asked[1])[0].replace("pge", "")
    assert outcome.stop.budgets["tool_calls"].used == 1


@pytest.mark.behaviour("M090")
@pytest.mark.case("B121")
async def test_a_model_that_keeps_naming_tools_that_are_not_there_is_stopped(client: AsyncClient) -> None:
    model = Endless("no_such_tool_$n", '{"number": $n}')
    outcome = await driven(client, model)
    assert (outcome.stop.status, outcome.stop.reason) == ("stuck", "no_progress")
    assert outcome.stop.budgets["tool_calls"].used == 0
    assert len(model.asked) <= 6, "long before the twentieth"


@pytest.mark.behaviour("M132")
async def test_one_search_in_ever_other_words_is_stopped_before_the_tokens_are_burnt(client: AsyncClient) -> None:
    model = Endless("lookup", '{"query": "refund policy $n"}', Usage(4_000, 500))
    outcome = await driven(client, model, limits={"tokens_total": 400_000})
    assert outcome.stop.status == "stuck"
    assert len(model.asked) <= 10
    assert outcome.stop.budgets["tokens_total"].used <= 45_000


@pytest.mark.behaviour("M162")
async def test_a_model_that_does_not_heed_its_warning_is_stopped_and_one_that_does_answers(
    client: AsyncClient,
) -> None:
    deaf = await driven(client, Endless("page", '{"number": 1}', TINY), profile="demo")
    assert (deaf.stop.status, deaf.stop.reason) == ("stuck", "repeat_call")
    heeding = [says(call("page", number=1), usage=TINY) for _ in range(6)]
    outcome, model = await steered(client, *heeding, says(text="it says the same"), profile="demo")
    assert outcome.stop.status == "completed"
    assert ["[warn" in text for text in told(model.asked[6])] == [False] * 5 + [True]


@pytest.mark.behaviour("M154")
async def test_reading_one_page_after_the_other_is_no_loop(client: AsyncClient) -> None:
    turns = [says(call("page", number=number)) for number in range(12)]
    outcome, _ = await steered(client, *turns, says(text="read"))
    assert (outcome.stop.status, outcome.stop.detectors) == ("completed", [])


@pytest.mark.behaviour("M150")
@pytest.mark.behaviour("M096")
async def test_loops_refusals_and_waste_in_one_run_end_in_one_way_with_a_whole_log(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    append = call("append", path=str(file), line="once")
    waste = Usage(4_500, 0)
    turns = [
        LIMITED,
        LIMITED,
        says(call("made_up"), usage=waste),
        [Text("half")],
        says(append, append, usage=waste),
        says(ToolCall("", "page", '```json\n{"number": 1}\n```'), usage=waste),
        says(ToolCall("", "page", '{"number": "one"}'), usage=waste),
        *[says(call("page", number=1), usage=waste)] * 20,
    ]
    terms = Terms(max_out=16, retry=RetrySettings(3, 10, 20))
    outcome, model = await steered(client, *turns, terms=terms, limits={"tokens_total": 60_000}, wrapup=False)
    stop = outcome.stop
    assert (stop.status, stop.reason) == ("stuck", "no_progress")
    assert stop.budgets["tokens_total"].used <= 60_000
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1, "the second one was the same while the first ran"
    kinds = [event.kind for event in await events_of(client.attach_run(outcome.stop.run))]
    assert kinds.count("run_settled") == 1
    assert kinds[-1] == "run_settled"
    assert len(model.asked) < 27
