"""Agents inside the daemon, with a desk and runs of the test's own: one that breaks takes no other with it, what was
kept in an earlier life is gone on with, and every connection to a model is given back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from protocol import _client_messages as cm
from protocol._contracts import Approval, Contract, ToolDescription
from protocol._framing import FRAME_LIMIT
from protocol._runs import AgentOptions, RunReason, RunStatus
from supervisor.config_agent import AgentSettings
from supervisor.core.policy import Rule
from supervisor.core.retry import DEFAULT, DEMO
from supervisor.core.run import State
from supervisor.hosting import MOST_AGENTS, Hosting, InnerLine
from supervisor.runs import RunRefusal
from tests.supervisor.core.turning import DONE, Loop, call, stop
from tests.supervisor.lines import ScriptedLine, ScriptedModel, agent_of, says

RULES = (Rule("pay", "ask", {"to": "*"}, "money"), Rule("look", "allow", {}, ""))
TOOLS = [ToolDescription(name, name, Contract(approval=Approval.NEVER), {"type": "object"}) for name in ("look", "pay")]


class Closing(ScriptedModel):
    """Says whether it was given up."""

    given_up = 0

    async def aclose(self) -> None:
        self.given_up += 1


class House:
    """Hosting, with runs as it looks at them and a desk that answers from a scripted line."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.lines: dict[str, ScriptedLine] = {}
        self.models: dict[str, Closing] = {}
        self.stops: list[tuple[str, RunStatus, RunReason]] = []
        self.left = 0
        self.runs: list[Any] = []
        shell: Any = SimpleNamespace(on_resume=[], stop=self._stop)
        self._hears_of_resumption = shell.on_resume
        tools: Any = SimpleNamespace(descriptions=lambda: TOOLS)
        self.hosting = Hosting(shell, tools, self._choose, AgentSettings(system="Be brief."), RULES)
        desk: Any = SimpleNamespace(take=self._take, left=self._leave)
        self.hosting.desk = desk

    def run(self, name: str, *turns: Any, notes: str = "", state: State = State.RUNNING, **line: Any) -> Any:
        """A run that an agent is wanted for."""
        self.models[name], self.lines[name] = Closing(*turns), ScriptedLine(**line)
        options = AgentOptions(model=name, constraints=["spend nothing"])
        spec = SimpleNamespace(uid=7, goal="mend it", agent=options, checks=(), profile="default")
        run = SimpleNamespace(id=name, spec=spec, notes=notes, machine=SimpleNamespace(state=state))
        self.runs.append(run)
        return run

    def host(self, run: Any) -> None:
        self.hosting.host(run, self.hosting.prepare(run.spec.agent, 7))

    def resume(self, run: Any) -> None:
        """A person has answered."""
        run.machine.state = State.RUNNING
        for hear in self._hears_of_resumption:
            hear(run)

    async def over(self, *names: str) -> None:
        """Until nothing is steered any more, and these models are given up."""
        with trio.fail_after(20):
            while self.hosting._steered or any(not self.models[name].given_up for name in names):
                await trio.sleep(0.001)

    def _choose(self, model: str | None) -> Any:
        if model not in self.models:
            raise RunRefusal("no_model", f"no model {model!r}")
        return self.models[model]

    def _stop(self, run: Any, status: RunStatus, reason: RunReason, _text: str = "", ends_calls: bool = False) -> None:
        self.stops.append((run.id, status, reason))

    def _take(self, asker: InnerLine, request: Any) -> None:
        self._nursery.start_soon(self._answer, asker, request)

    async def _answer(self, asker: InnerLine, request: Any) -> None:
        line = self.lines[request.run]
        answer = await line.answer(line.send(request))
        answer.id = request.id
        if isinstance(answer, cm.Settled):
            asker.settled(request.id, answer.result)
        else:
            asker.say(answer)

    def _leave(self, _asker: InnerLine) -> None:
        self.left += 1


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with trio.open_nursery() as nursery:
        yield House(nursery)
        nursery.cancel_scope.cancel()


async def test_an_agent_works_on_its_runs_goal_with_the_daemons_tools_and_gives_its_model_back(house: House) -> None:
    run = house.run("r1", says(call("look", "a")), says(call("finish", answer="7")))
    async with trio.open_nursery() as nursery:
        await nursery.start(house.hosting.run)
        house.host(run)
        await house.over("r1")
        nursery.cancel_scope.cancel()
    model, line = house.models["r1"], house.lines["r1"]
    assert line.of(cm.FinishRun)[0].answer == "7"
    first = model.asked[0]
    assert [tool.name for tool in first.tools] == ["look", "pay", "finish", "ask_user"]
    assert first.messages[0].text.endswith("Be brief.\n")
    assert "mend it" in first.messages[1].text
    assert "spend nothing" in first.messages[1].text
    assert "pay with to = *: ask (money)" in first.messages[1].text
    assert "allow" not in first.messages[1].text
    assert (model.given_up, house.left, house.stops) == (1, 1, [])


@pytest.mark.parametrize("how", ["notes", "answer", "lost"])
async def test_one_that_breaks_ends_its_own_run_and_no_other(house: House, how: str) -> None:
    def nobody(_: Any) -> Any:
        return cm.RunState(0, None)  # type: ignore[arg-type]  # no answer to this request

    special: dict[str, Any] = {"answer": {"FinishRun": nobody}, "lost": {"WaitRun": nobody}}.get(how, {})
    bad = house.run("bad", says(call("finish", answer="x")), notes="no notes" if how == "notes" else "", **special)
    good = house.run("good", says(call("look", "a")), says(text="done"))
    async with trio.open_nursery() as nursery:
        await nursery.start(house.hosting.run)
        house.hosting.host(bad, house.models["bad"], bad.notes)
        house.host(good)
        await house.over("bad", "good")
        nursery.cancel_scope.cancel()
    assert house.stops == [("bad", RunStatus.INTERNAL_ERROR, RunReason.SUPERVISOR_BUG)]
    assert house.lines["good"].stop == DONE


@pytest.mark.behaviour("M086")
@pytest.mark.behaviour("M125")
async def test_a_run_that_waited_in_an_earlier_life_goes_on_with_what_was_kept(house: House) -> None:
    line = ScriptedLine()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent_of(line, ScriptedModel(says(call("ask_user", "a", question="Which?")))).steer)
        while not line.of(cm.ReadEvents):
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    notes = line.of(cm.KeepNotes)[-1].notes
    answered = house.run("r1", says(text="done"), notes=notes, state=State.SUSPENDED)
    house.run("r2", notes="whatever", state=State.SUSPENDED)
    house.lines["r1"].tell("run_suspended")
    house.lines["r1"].tell("run_resumed", answer="that one")
    async with trio.open_nursery() as nursery:
        await nursery.start(house.hosting.run)
        house.resume(answered)
        await house.over("r1")
        nursery.cancel_scope.cancel()
    (request,) = house.models["r1"].asked
    assert "[a person answers] that one" in [message.text for message in request.messages]
    assert house.lines["r2"].asked == [], "nobody has answered that one"


async def test_one_of_which_nothing_was_kept_is_not_begun_again_but_ends(house: House) -> None:
    lost = house.run("lost", trio.sleep_forever, state=State.SUSPENDED)
    async with trio.open_nursery() as nursery:
        await nursery.start(house.hosting.run)
        house.resume(lost)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert house.stops == [("lost", RunStatus.INTERNAL_ERROR, RunReason.RECOVERED_AFTER_CRASH)]
    assert (house.models["lost"].asked, house.lines["lost"].asked) == ([], [])


async def test_a_run_whose_model_is_there_no_more_waits_on_and_says_so_when_it_goes_on_as_all_others_do(
    house: House,
) -> None:
    kept: dict[str, Any] = {"notes": Loop().machine.dump(), "state": State.SUSPENDED}
    waiting = [house.run(f"r{number}", trio.sleep_forever, **kept) for number in range(MOST_AGENTS + 2)]
    del house.models["r0"]
    async with trio.open_nursery() as nursery:
        await nursery.start(house.hosting.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (house.stops, house.hosting._steered) == ([], {})
        for run in waiting:
            house.resume(run)
        await trio.testing.wait_all_tasks_blocked()
        assert house.stops == [("r0", RunStatus.PROVIDER_FAILED, RunReason.PERMANENT)]
        assert len(house.hosting._steered) == MOST_AGENTS + 1
        with pytest.raises(RunRefusal) as refused:
            house.hosting.prepare(AgentOptions(model="r1"), 7)
        assert refused.value.code == "overloaded"
        waiting[1].machine.state = waiting[2].machine.state = State.SUSPENDED
        house.hosting.prepare(AgentOptions(model="r1"), 7)  # those that wait for a person do not count
        nursery.cancel_scope.cancel()
    assert all(model.given_up for model in house.models.values())


async def test_an_agent_whose_run_is_ended_by_others_is_over_with_it(house: House) -> None:
    run = house.run("r1", trio.sleep_forever)
    async with trio.open_nursery() as nursery:
        await nursery.start(house.hosting.run)
        house.host(run)
        with trio.fail_after(20):
            while not house.models["r1"].asked:
                await trio.sleep(0.001)
        house.lines["r1"].settle(stop(RunStatus.CANCELLED, RunReason.CLIENT))
        await house.over("r1")
        nursery.cancel_scope.cancel()
    assert house.stops == []


@pytest.mark.behaviour("M138")
async def test_a_call_that_no_frame_holds_is_refused_as_at_any_door() -> None:
    asked: list[Any] = []
    desk: Any = SimpleNamespace(take=lambda _line, request: asked.append(request), left=lambda _line: None)
    line = InnerLine(desk, 7)
    for tool, arguments in (("look", "x" * FRAME_LIMIT), ("x" * FRAME_LIMIT, "{}")):
        answer = await line.answer(line.send(cm.Submit(0, tool, arguments)))
        assert (answer.error.code, asked) == ("invalid_arguments", [])
    line.send(cm.Submit(0, "look", "x" * 900_000))
    assert len(asked) == 1


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped() -> None:
    asked: list[Any] = []
    desk: Any = SimpleNamespace(take=lambda _line, request: asked.append(request), left=lambda _line: None)
    line = InnerLine(desk, 7)
    first, second = line.send(cm.ShowRun(0, "r")), line.send(cm.ShowRun(0, "r"))
    assert [request.id for request in asked] == [first, second] == [1, 2]
    with trio.move_on_after(0):
        await line.answer(first)
    line.say(cm.RunNotes(first, "r", "late"))
    line.say(cm.RunNotes(second, "r", "in time"))
    assert (await line.answer(second)).notes == "in time"
    assert line._waiting == {}


async def test_a_model_is_asked_again_as_the_profile_of_its_run_says(house: House) -> None:
    runs = [house.run("default"), house.run("demo")]
    runs[1].spec.profile = "demo"
    assert [house.hosting._machine(run, "").terms.retry for run in runs] == [DEFAULT, DEMO]
