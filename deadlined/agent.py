"""The loop as a library: the same that the daemon runs for `deadlined agent`, in this process, with a decision function
of your own or one of the product's models. The run, its budget, its calls and their ends are the daemon's all the same.

Owns the opening and leaving of the run. What the loop does is ``supervisor.core.turn``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Unpack

import trio

from deadlined._conversation import Exchange
from deadlined._decisions import Decide, Decision, FunctionGateway, Turn, call
from deadlined._errors import DeadlinedError, RequestRefused
from deadlined._run_words import RunOptions
from deadlined.async_client import AsyncClient
from deadlined.async_runs import AsyncRun
from deadlined.runs import LEAVING_S
from protocol import InvalidArguments
from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import StopRecord
from supervisor.agent import Agent, Answer, LostRunError
from supervisor.core import turn_words as words
from supervisor.core.briefing import briefing, done_when
from supervisor.core.context import Pins
from supervisor.core.conversation import Conversation
from supervisor.core.model_events import Gateway, Message, Request, ToolCall
from supervisor.core.retry import of_profile
from supervisor.core.turn import TurnMachine
from supervisor.hosting import own_tools

__all__ = ["Decide", "Decision", "Message", "Outcome", "Request", "ToolCall", "Turn", "call", "run_agent", "steer"]


class Outcome(NamedTuple):
    """Why the run stopped, and all that was said, every request with its result: ``earlier`` of the next run."""

    stop: StopRecord
    messages: list[Message]


class ClientLine:
    """A line to the daemon over a client's connection."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def send(self, request: cm.Request) -> Exchange | cm.Failed:
        """Ask. What cannot be said is refused here: a model may ask for more than a frame holds."""
        try:
            return self._client._line.ask_nowait(request)
        except InvalidArguments as error:
            return cm.Failed(None, ErrorInfo(ErrorClass.ARGUMENT, "invalid_arguments", str(error)))

    async def answer(self, exchange: Exchange | cm.Failed) -> Answer:
        """The last answer. Cancelled, a call that was asked for ends with its run."""
        if isinstance(exchange, cm.Failed):
            return exchange
        await self._client._over(exchange)
        if isinstance(exchange.error, RequestRefused):
            return cm.Failed(exchange.request.id, exchange.error.error)
        if exchange.error is not None:
            raise exchange.error
        assert exchange.answer is not None, "it is over"
        return exchange.answer


def run_agent(
    task: str,
    decide: Decide | Gateway,
    *,
    socket: str | None = None,
    tell: Callable[[words.Effect | words.Input], None] = lambda _: None,
    **options: Unpack[RunOptions],
) -> Outcome:
    """Work on ``task`` until its run has stopped, and return why. ``decide`` is asked each round what to do next.

    Blocking, also while the run waits for a person, who decides somewhere else (`deadlined approvals`, `Run.resume`).
    ``options`` as for `Client.run`. Raises DaemonNotRunning, RequestRefused, ConnectionLost, or DeadlinedError for a
    run that its daemon does not know any more. Interrupted, it cancels the run and its calls.
    """

    async def main() -> Outcome:
        async with AsyncClient(socket, name="agent") as client:
            return await steer(client, task, decide, tell=tell, **options)

    return trio.run(main)


async def steer(
    client: AsyncClient,
    task: str,
    decide: Decide | Gateway,
    *,
    constraints: Sequence[str] = (),
    system: str = "",
    earlier: Sequence[Message] = (),
    plan: bool = False,
    terms: words.Terms | None = None,
    tell: Callable[[words.Effect | words.Input], None] = lambda _: None,
    opened: Callable[[str], None] = lambda _: None,
    **options: Unpack[RunOptions],
) -> Outcome:
    """The same under Trio, on a connection that is there. ``constraints``: lines that are always shown; ``system``:
    said behind the loop's own words; ``earlier``: messages of the run before, in the same session; ``plan``: first a
    plan, then its steps; ``opened`` hears the run's id.

    It goes on while the run waits for a person. Cancelled, also then, it cancels the run, and waits for its end, for a
    while.
    """
    options["goal"] = task
    options.setdefault("wrapup", True)
    tools = await client.tools()  # before the run's time begins
    async with client.run(**options) as run:
        opened(run.id)
        conversation = Conversation(briefing(system), earlier)
        conversation.said_by_user(task)
        own = own_tools(task, tools, plan)
        view = await run.view()
        machine = TurnMachine(conversation, own, terms or words.Terms(retry=of_profile(view.profile)))
        pinned = Pins(task, (*constraints, *done_when(view.checks)))
        try:
            run.stop = await Agent(ClientLine(client), _gateway(decide), run.id, machine, pinned, tell).steer()
        except LostRunError as error:
            raise DeadlinedError(str(error)) from error
        except BaseException:
            await _end(run)
            raise
        return Outcome(run.stop, machine.transcript())


async def _end(run: AsyncRun) -> None:
    """Also of one that waits for a person: what it would go on with is lost with this loop."""
    with suppress(DeadlinedError), trio.move_on_after(LEAVING_S, shield=True):
        await run.cancel()


def _gateway(decide: Decide | Gateway) -> Gateway:
    return decide if isinstance(decide, Gateway) else FunctionGateway(decide)
