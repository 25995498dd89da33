"""Agents that the daemon steers itself: one task for each, with a line to the desk that needs no socket, and the model
that its run asked for. A run that waited for a person in an earlier life gets its agent again when it goes on, with
what that had kept: nothing is needed of a model before, and where there is none now the run goes on waiting.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog
import trio

from protocol import _client_messages as cm
from protocol._contracts import ToolDescription
from protocol._framing import FRAME_LIMIT
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo
from protocol._runs import AgentOptions, RunReason, RunStatus
from supervisor.agent import Agent, Answer
from supervisor.config_agent import AgentSettings
from supervisor.core.briefing import briefing, done_when
from supervisor.core.context import Pins
from supervisor.core.conversation import Conversation
from supervisor.core.model_events import Gateway, ToolSpec
from supervisor.core.own_tools import OwnTools
from supervisor.core.plan import PlanMachine, offered
from supervisor.core.policy import Rule
from supervisor.core.retry import of_profile
from supervisor.core.run import State
from supervisor.core.tools import Tools
from supervisor.core.turn import TurnMachine
from supervisor.core.turn_words import Terms
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun
from supervisor.runs import RunRefusal, Runs

if TYPE_CHECKING:
    from supervisor.desk import Desk

_LOG = structlog.get_logger("deadlined.agent")
MOST_AGENTS = 64
"""That are steered at once, beside those that wait for a person: each holds a connection to its model."""
_CLOSING_S = 1.0
_A_FILE = "scripted:"
_NO_NOTES = "its agent's conversation was too long to be kept, and is lost with the daemon that had it"


class Hosting:
    """Every agent of this daemon. ``choose(model)`` gives the gateway, or raises RunRefusal: there is none. ``rules``:
    the policies, for the model to see. ``desk`` is set when there is one."""

    def __init__(
        self,
        runs: Runs,
        tools: Tools,
        choose: Callable[[str | None], Gateway],
        settings: AgentSettings,
        rules: tuple[Rule, ...],
    ) -> None:
        self._runs, self._tools, self._choose, self._settings = runs, tools, choose, settings
        self._policies = tuple(told for told in map(_told, rules) if told)
        self._nursery: trio.Nursery | None = None
        self._steered: dict[str, LiveRun] = {}
        self.desk: Desk
        runs.on_resume.append(self._resumed)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Steer until cancelled; then nothing more is asked, and the runs are those of a daemon that stops."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def prepare(self, options: AgentOptions, uid: int) -> Gateway:
        """The model for a run that is about to be opened. Raises RunRefusal: there is none, or it cannot be had."""
        busy = sum(run.machine.state is not State.SUSPENDED for run in self._steered.values())
        if busy >= MOST_AGENTS:
            raise RunRefusal("overloaded", f"{MOST_AGENTS} agents are steered already; wait for one to end")
        return self._gateway(options, uid)

    def _gateway(self, options: AgentOptions, uid: int) -> Gateway:
        model = options.model or self._settings.model
        if (options.model or "").startswith(_A_FILE) and uid not in (0, os.geteuid()):
            raise RunRefusal("no_model", "the daemon reads a file for nobody but its own user")
        return self._choose(model)

    def host(self, run: LiveRun, gateway: Gateway, notes: str = "") -> None:
        """Steer a run that is open. ``notes``: of its agent in an earlier life."""
        assert self._nursery is not None
        self._steered[run.id] = run
        self._nursery.start_soon(self._steer, run, gateway, notes)

    def _resumed(self, run: LiveRun) -> None:
        if run.spec.agent is not None and run.id not in self._steered:
            assert self._nursery is not None
            self._nursery.start_soon(self._again, run)  # when whoever let it go on has done so

    async def _again(self, run: LiveRun) -> None:
        assert run.spec.agent is not None
        if not run.notes:  # from the beginning it would do again what it has done
            self._runs.stop(run, RunStatus.INTERNAL_ERROR, RunReason.RECOVERED_AFTER_CRASH, _NO_NOTES)
            return
        try:
            self.host(run, self._gateway(run.spec.agent, run.spec.uid), run.notes)  # however many there were
        except RunRefusal as refusal:
            _LOG.warning("agent_not_resumed", run=run.id, why=str(refusal))
            self._runs.stop(run, RunStatus.PROVIDER_FAILED, RunReason.PERMANENT, str(refusal))

    async def _steer(self, run: LiveRun, gateway: Gateway, notes: str) -> None:
        line = InnerLine(self.desk, run.spec.uid)
        try:
            await Agent(line, gateway, run.id, self._machine(run, notes), self._pins(run)).steer()
        except Exception as error:  # noqa: BLE001  # a bug of ours ends this run, and no other
            _LOG.exception("agent_failed", run=run.id)
            text = f"{type(error).__name__}: {error}"
            self._runs.stop(run, RunStatus.INTERNAL_ERROR, RunReason.SUPERVISOR_BUG, text, ends_calls=True)
        finally:
            self._steered.pop(run.id, None)
            line.close()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSING_S):
                await gateway.aclose()

    def _machine(self, run: LiveRun, notes: str) -> TurnMachine:
        settings = self._settings
        conversation = Conversation(briefing(settings.system))
        conversation.said_by_user(run.spec.goal)
        assert run.spec.agent is not None
        own = own_tools(run.spec.goal, self._tools.descriptions(), run.spec.agent.plan)
        machine = TurnMachine(conversation, own, Terms(settings.max_out, settings.last, of_profile(run.spec.profile)))
        if notes:
            machine.load(notes)
        return machine

    def _pins(self, run: LiveRun) -> Pins:
        assert run.spec.agent is not None
        constraints = (*run.spec.agent.constraints, *done_when(run.spec.checks))
        return Pins(run.spec.goal, constraints, self._policies)


class InnerLine:
    """A line to the desk inside the daemon: what is asked is answered as at any door."""

    def __init__(self, desk: Desk, uid: int) -> None:
        self.uid = uid
        self.attached: dict[int, LiveCall] = {}
        self.awaited: dict[int, LiveCall] = {}
        self._desk = desk
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[trio.Event, list[Answer]]] = {}

    def send(self, request: cm.Request) -> int:
        """Ask; the number of the request."""
        number = next(self._numbers)
        self._waiting[number] = trio.Event(), []
        if isinstance(request, cm.Submit) and len(request.tool) + len(request.arguments) > FRAME_LIMIT:
            text = f"the call has {len(request.arguments)} characters; allowed: what fits into {FRAME_LIMIT} bytes"
            self.say(cm.Failed(number, ErrorInfo(ErrorClass.ARGUMENT, "invalid_arguments", text)))  # as at any door
        else:
            self._desk.take(self, msgspec.structs.replace(request, id=number))
        return number

    async def answer(self, asked: int) -> Answer:
        """The last answer. Cancelled, a call that was asked for goes on, as long as its run does."""
        event, answers = self._waiting[asked]
        try:
            await event.wait()
        finally:
            del self._waiting[asked]
        return answers[0]

    def say(self, message: cm.FromDaemon) -> None:
        """An answer has come."""
        if isinstance(message, cm.Welcome) or message.id not in self._waiting:
            return
        event, answers = self._waiting[message.id]
        answers.append(message)
        event.set()

    def settled(self, request: int, result: CallResult) -> None:
        """A call that was asked for has settled."""
        if self.attached.pop(request, None) is None:
            self.awaited.pop(request, None)
        self.say(cm.Settled(request, result))

    def close(self) -> None:
        """Nobody is there any more to be told anything."""
        self._desk.left(self)


def own_tools(goal: str, tools: Sequence[ToolDescription], plan: bool) -> OwnTools:
    """What a model is offered of these tools, with a plan or without."""
    specs = [ToolSpec(tool.name, tool.description, dict(tool.schema)) for tool in tools]
    readers = [tool.name for tool in offered("planner", tools)]
    return OwnTools(goal, specs, readers, PlanMachine(goal, [tool.name for tool in tools]) if plan else None)


def _told(rule: Rule) -> str:
    if rule.action == "allow":
        return ""
    when = ", ".join(f"{path} = {glob}" for path, glob in rule.when.items())
    return f"{rule.tool}{f' with {when}' if when else ''}: {rule.action}{f' ({rule.reason})' if rule.reason else ''}"
