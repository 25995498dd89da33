"""What must hold of loops, row by row, with the product's own loop: a scripted model decides in this process, the
daemon and its workers are real. Whatever the model says, the bounds are the daemon's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from deadlined.agent import Outcome, call, steer
from deadlined.async_client import AsyncClient
from protocol._events import Event
from supervisor.core.briefing import WRAP_UP
from supervisor.core.model_events import Request, Stop, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.retry import DEMO
from supervisor.core.turn_words import Terms
from tests.contract.conftest import TestedDaemon, open_daemons
from tests.supervisor.lines import ScriptedModel, says

pytestmark = pytest.mark.contract

HERE = Path(__file__).parent
CONFIG = f"""
[tool.runs]
kind = "python"
module = "runs_tools"
path = "{HERE}"

[profile.patient]
limits = {{ steps = 1_000, wall_ms = 60_000 }}
detectors = "production"

[tenant.default]
session_limits = {{ tokens_total = 15_000 }}

[[policy]]
tool = "append"
when = {{ line = "ask:*" }}
action = "ask"
reason = "a person decides"
"""
LIMITED = ProviderFailure(FailureKind.HTTP_STATUS, 429, "slow down")
SMALL = Terms(max_out=16)
TINY = Usage(10, 5)


@pytest.fixture(scope="module")
def agents_daemon() -> Iterator[TestedDaemon]:
    with open_daemons() as start:
        yield start(CONFIG)


@pytest.fixture
async def client(agents_daemon: TestedDaemon) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(agents_daemon.socket) as connected:
        yield connected


async def steered(client: AsyncClient, *turns: Any, **options: Any) -> tuple[Outcome, ScriptedModel]:
    """The outcome, and the model with what it was asked. A broken product has half a minute."""
    model = ScriptedModel(*turns)
    with trio.fail_after(60):
        outcome = await steer(client, "mend it", model, **{"deadline_ms": 30_000, **options})
    return outcome, model


async def events_of(client: AsyncClient, outcome: Outcome) -> list[Event]:
    """Of a run that has stopped; their numbers have no gap."""
    events = [event async for event in client.attach_run(outcome.stop.run).events()]
    assert [event.data["run_seq"] for event in events] == list(range(1, len(events) + 1))
    return events


def told(request: Request) -> list[str]:
    """The results that a model reads."""
    return [message.text for message in request.messages if message.role == "tool"]


class Endless(ScriptedModel):
    """Says the same for ever; ``$n`` in its arguments is the number of the time."""

    def __init__(self, tool: str, arguments: str, usage: Usage | None = None) -> None:
        super().__init__()
        self._tool, self._arguments, self._usage = tool, arguments, usage

    async def stream(self, request: Request) -> Any:
        arguments = self._arguments.replace("$n", str(len(self.asked)))
        if not request.tools:
            self.turns = [says(text="what is known so far")]
        else:
            self.turns = [says(ToolCall("", self._tool, arguments), usage=self._usage)]
        async for event in super().stream(request):
            yield event


async def driven(client: AsyncClient, model: ScriptedModel, **options: Any) -> Outcome:
    with trio.fail_after(60):
        return await steer(client, "mend it", model, **{"deadline_ms": 30_000, **options})


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
    ended = [event for event in await events_of(client, outcome) if event.kind == "call_ended"]
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
    (ended,) = [event for event in await events_of(client, outcome) if event.kind == "call_ended"]
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


@pytest.mark.behaviour("M167")
@pytest.mark.behaviour("M165")
@pytest.mark.behaviour("M166")
async def test_two_refusals_and_the_third_attempt_is_the_answer(client: AsyncClient) -> None:
    fast = Terms(retry=type(DEMO)(3, 20, 100, 0.75, 1.25))
    outcome, model = await steered(client, LIMITED, LIMITED, says(text="it is 7"), terms=fast)
    assert (outcome.stop.status, outcome.stop.answer, len(model.asked)) == ("completed", "it is 7", 3)
    waits = [event.data["delay_ms"] for event in await events_of(client, outcome) if event.kind == "retry_scheduled"]
    assert len(waits) == 2
    assert outcome.stop.budgets["steps"].used == 1
    assert outcome.stop.budgets["retries"].used == 2


@pytest.mark.behaviour("M089")
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
    outcome, model = await steered(client, *turns, terms=Terms(retry=type(DEMO)(3, 20, 100)))
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
            client, *turns, workspace=str(HERE), terms=Terms(retry=type(DEMO)(2, 10, 20)), wrapup=False
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

    async with trio.open_nursery() as nursery:
        stops: list[Any] = []

        async def work() -> None:
            stops.append((await steered(client, thinks))[0].stop)

        nursery.start_soon(work)
        await thinking.wait()
        (row,) = [row for row in await client.runs() if row.status == "running"]
        await client.attach_run(row.run).cancel()
    assert (stops[0].status, stops[0].reason) == ("cancelled", "client")


# ---------------------------------------------------------------- tools that are not there, do not answer, ask


@pytest.mark.behaviour("M090")
@pytest.mark.behaviour("M140")
@pytest.mark.case("B121")
@pytest.mark.case("B126")
async def test_a_name_that_is_no_tool_is_answered_with_those_that_are_and_the_run_goes_on(client: AsyncClient) -> None:
    turns = [says(call("pge", number=1)), says(call("page", number=1)), says(call("finish", answer="text of page 1"))]
    outcome, model = await steered(client, *turns)
    assert outcome.stop.status == "completed"
    assert "unknown_tool" in told(model.asked[1])[0]
    assert "page" in told(model.asked[1])[0].replace("pge", "")
    assert outcome.stop.budgets["tool_calls"].used == 1


@pytest.mark.behaviour("M091")
@pytest.mark.behaviour("M074")
async def test_a_call_that_was_made_under_a_key_is_not_made_again(client: AsyncClient, tmp_path: Path) -> None:
    file = tmp_path / "written"
    append = call("append", path=str(file), line="ask: once")
    turns = [says(append), says(call("finish", answer="written"))]
    async with trio.open_nursery() as nursery:
        outcomes: list[Any] = []

        async def work() -> None:
            outcomes.append(await steered(client, *turns))

        nursery.start_soon(work)
        approval = await asked(client)
        await client.approve(approval.approval)
    outcome, model = outcomes[0]
    assert outcome.stop.status == "completed"
    assert file.read_text(encoding="utf-8") == "ask: once\n"
    assert len(model.asked) == 2, "nobody planned anew"
    assert "append c_" in told(model.asked[1])[0]
    kinds = [event.kind for event in await events_of(client, outcome)]
    assert (kinds.count("approval_asked"), kinds.count("approval_consumed")) == (1, 1)


async def asked(client: AsyncClient) -> Any:
    """The one question that is open, once it is."""
    with trio.fail_after(20):
        while not (found := await client.approvals()):
            await trio.sleep(0.02)
    return found[0]


@pytest.mark.behaviour("M086")
async def test_questions_of_one_turn_are_answered_one_by_one_and_each_call_is_made_once(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "written"
    lines = ["ask: one", "ask: two", "ask: three"]
    turn = says(
        call("page", number=1), *[call("append", path=str(file), line=line) for line in lines], call("naps", ms=300)
    )
    outcomes: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def work() -> None:
            outcomes.append(await steered(client, turn, says(call("finish", answer="written"))))

        nursery.start_soon(work)
        early = await asked(client)  # while a sibling of it is still at work
        await client.approve(early.approval)
        with trio.fail_after(20):
            while len(left := await client.approvals()) != 2:
                await trio.sleep(0.02)
        await client.reject(left[0].approval, note="not this one")
        await client.approve(left[1].approval)
    outcome, model = outcomes[0]
    assert outcome.stop.status == "completed"
    rejected = json.loads(left[0].arguments)["line"]
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
    stops = []
    async with trio.open_nursery() as nursery:

        async def work() -> None:
            outcome, model = await steered(client, says(stall), says(stall))
            stops.append((outcome.stop, told(model.asked[1])))

        nursery.start_soon(work)
        with trio.fail_after(30):
            while not (rows := [row for row in await client.runs() if row.status == "waiting_for_approval"]):
                await trio.sleep(0.02)
        assert rows[0].reason == "reconcile_required"
        await client.attach_run(rows[0].run).cancel()
    (stop, results) = stops[0]
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
    stops = []
    async with trio.open_nursery() as nursery:

        async def work() -> None:
            outcome, _ = await steered(client, says(call("append", path=str(file), line="ask: me")))
            stops.append(outcome)

        nursery.start_soon(work)
        approval = await asked(client)
        await client.attach_run(approval.run).cancel()
    assert stops[0].stop.status == "cancelled"
    assert "not executed" in stops[0].messages[-1].text
    with pytest.raises(Exception, match="void"):
        await client.approve(approval.approval)
    assert not file.exists()


@pytest.mark.behaviour("M123")
@pytest.mark.behaviour("M119")
async def test_what_is_missing_is_asked_for_and_the_answer_goes_to_the_model(client: AsyncClient) -> None:
    turns = [says(call("ask_user", question="Which tenant?")), says(call("finish", answer="acme's"))]
    async with trio.open_nursery() as nursery:
        outcomes: list[Any] = []

        async def work() -> None:
            outcomes.append(await steered(client, *turns))

        nursery.start_soon(work)
        with trio.fail_after(20):
            while not (rows := [row for row in await client.runs() if row.status == "needs_input"]):
                await trio.sleep(0.02)
        stop = (await client.attach_run(rows[0].run).view()).stop
        assert stop is not None
        assert (stop.reason, stop.detail) == ("missing_parameter", "Which tenant?")
        await client.attach_run(rows[0].run).resume("acme")
    outcome, model = outcomes[0]
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
    async with trio.open_nursery() as nursery:
        outcomes: list[Any] = []

        async def work() -> None:
            outcomes.append(await steered(client, *turns, profile="patient", constraints=["spend nothing"]))

        nursery.start_soon(work)
        approval = await asked(client)
        await client.approve(approval.approval, note="this line and no other")
    outcome, model = outcomes[0]
    assert outcome.stop.status == "completed"
    last = model.asked[-1].messages
    assert not [message for message in last if message.role == "tool" and "ask: the one" in message.text]
    assert "this line and no other" in last[1].text
    assert "spend nothing" in last[1].text
    assert "ask: the one" in last[1].text
    assert len(last) < 30


# ---------------------------------------------------------------- loops


@pytest.mark.behaviour("M162")
@pytest.mark.behaviour("M014")
@pytest.mark.behaviour("M132")
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
    terms = Terms(max_out=16, retry=type(DEMO)(3, 10, 20))
    outcome, model = await steered(client, *turns, terms=terms, limits={"tokens_total": 60_000}, wrapup=False)
    stop = outcome.stop
    assert (stop.status, stop.reason) == ("stuck", "no_progress")
    assert stop.budgets["tokens_total"].used <= 60_000
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1, "the second one was the same while the first ran"
    kinds = [event.kind for event in await events_of(client, outcome)]
    assert kinds.count("run_settled") == 1
    assert kinds[-1] == "run_settled"
    assert len(model.asked) < 27


async def test_nothing_is_left_of_any_of_it(client: AsyncClient) -> None:
    assert [row.run for row in await client.runs()] == []
    assert (await client.status()).calls_in_flight == 0
