"""The asynchronous client, for Trio and asyncio through anyio: any number of calls at once on one connection.

Owns the words of the Python interface and the two tasks that read and write. The wire is ``_conversation``'s.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Literal, Unpack

import anyio
from anyio.abc import ByteStream, SocketAttribute

from deadlined._arguments import Arguments, SubmitOptions, arguments_text, submit_message
from deadlined._async_line import AsyncLine
from deadlined._blocking import AGAIN_S
from deadlined._conversation import Exchange, Kind, cancel_of, was_live
from deadlined._errors import DaemonNotRunning, DaemonSilent
from deadlined._following import POLL_S, EventCursor, OutputCursor
from deadlined._run_words import RunOptions, listed, open_message
from deadlined.async_runs import AsyncRun, open_block
from protocol import _client_messages as cm
from protocol._contracts import ToolDescription
from protocol._events import Event
from protocol._outcomes import CallResult
from protocol._places import find_socket
from protocol._runs import AgentOptions, ApprovalView, OpenEffect, RunRow

ANSWER_TIMEOUT_S = 30.0
CANCEL_WAIT_S = 10.0
"""How long a cancelled ``call`` waits for the confirmed end of what it started."""


class AsyncCallHandle:
    """One call by its id: the one just submitted, or any call of the same user."""

    def __init__(
        self, client: AsyncClient, call: str, submitted: Exchange | None = None, deadline_ms: int | None = None
    ) -> None:
        self.call = call
        self.deadline_ms = deadline_ms
        """The budget that holds, where this connection submitted the call."""
        self._client = client
        self._end = submitted

    @property
    def settled(self) -> CallResult | None:
        """The final result, if it has been heard here already; asks nobody."""
        return self._end.outcome(cm.Settled).result if self._end and self._end.answer else None

    async def wait(self) -> CallResult:
        """The final result, when the call has settled. Cancelling the wait leaves the call running."""
        if self._end is None:
            self._end = self._client._line.ask_nowait(cm.Wait(id=0, call=self.call))
        await self._client._over(self._end)
        return self._end.outcome(cm.Settled).result

    async def result(self) -> CallResult | None:
        """The final result if the call has settled; None while it runs."""
        state = self.settled or await self.peek()
        return None if isinstance(state, cm.Pending) else state

    async def peek(self) -> CallResult | cm.Pending:
        """Ask once: the final result, or the time that is left."""
        asked = await self._client._line.answered(cm.Wait(id=0, call=self.call, nowait=True))
        return asked.answer if isinstance(asked.answer, cm.Pending) else asked.outcome(cm.Settled).result

    async def cancel(self) -> bool:
        """Have the call ended now; ``wait`` returns when its end is confirmed. False: it had settled already."""
        if self.settled is not None:
            return False
        return was_live(await self._client._line.answered(cancel_of(self.call, self._end)))

    def output(self, *, stream: str = "both", follow: bool = True) -> AsyncIterator[bytes]:
        """Raw output as it is written, until the call has settled; without ``follow``, what is there now."""
        return _AsyncOutput(self._client, OutputCursor(self.call, stream), follow)


class _AsyncOutput:
    """An iterator and not a generator: nothing is left to be finalised when a reader stops early."""

    def __init__(self, client: AsyncClient, cursor: OutputCursor, follow: bool) -> None:
        self._client, self._cursor, self._follow = client, cursor, follow

    def __aiter__(self) -> _AsyncOutput:
        return self

    async def __anext__(self) -> bytes:
        while not self._cursor.ended:
            if self._cursor.caught_up:
                if not self._follow:
                    break
                await anyio.sleep(POLL_S)
            asked = await self._client._line.answered(self._cursor.next_request())
            if data := self._cursor.take(asked.outcome(cm.OutputChunk)):
                return data
        raise StopAsyncIteration


class AsyncClient:
    """A connection to the daemon at ``socket``, else where the command line would look. An async context manager:
    entering raises DaemonNotRunning when there is no daemon; leaving ends the calls that were submitted on the
    connection and not detached.
    """

    def __init__(self, socket: str | None = None, *, name: str = "python", answer_timeout_s: float = ANSWER_TIMEOUT_S):
        self._path = find_socket(socket)
        self._name = name
        self._answer_timeout_s = answer_timeout_s

    async def __aenter__(self) -> AsyncClient:
        self._stream = await self._connect()
        self._line = AsyncLine(self._stream, self._name, self._answer_timeout_s)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._line.read)
        self._tasks.start_soon(self._line.write)
        try:
            await self._line.greet()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._line.close()
        try:
            return await self._tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup:
            if error is None:
                raise
            return False  # our two tasks raise nothing: the group is a wrapping around the caller's own error
        finally:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()

    async def call(self, tool: str, arguments: Arguments | None = None, **options: Unpack[SubmitOptions]) -> CallResult:
        """Run ``tool`` and return its result, whatever it is.

        Raises ValueError for arguments that JSON cannot carry, ConnectionLost when the daemon went away meanwhile.
        Cancelled, it cancels the call in the daemon and waits up to 10 s, shielded, for its confirmed end.
        """
        exchange = self._line.ask_nowait(submit_message(tool, arguments, options))
        try:
            await self._over(exchange)
        except anyio.get_cancelled_exc_class():
            await self._end_in_daemon(exchange)
            raise
        return exchange.outcome(cm.Settled).result

    async def submit(
        self, tool: str, arguments: Arguments | None = None, *, detach: bool = False, **options: Unpack[SubmitOptions]
    ) -> AsyncCallHandle:
        """Start ``tool`` and return once the daemon has accepted it. A detached call outlives this client.

        Raises what ``call`` raises; a call that was not executed shows in the handle's result. Cancelled before the
        daemon accepted it, an attached call is cancelled too; a detached one may run.
        """
        message = submit_message(tool, arguments, options)
        message.announce, message.detach = True, detach
        exchange = self._line.ask_nowait(message)
        try:
            await self._line.wait_until(exchange, lambda: exchange.announced)
        except anyio.get_cancelled_exc_class():
            await self._end_in_daemon(exchange)
            raise
        return AsyncCallHandle(self, exchange.call(), None if exchange.detached else exchange, exchange.deadline_ms)

    def handle(self, call: str) -> AsyncCallHandle:
        """A handle on any call of the same user, by its id; whether there is one shows at its first use."""
        return AsyncCallHandle(self, call)

    def run(self, **options: Unpack[RunOptions]) -> AbstractAsyncContextManager[AsyncRun]:
        """A run for the length of an ``async with`` block: leaving it cancels the run if it still runs, and its calls
        with it; shielded, bounded.

        With ``on_disconnect="keep"`` only an exception does, a cancellation too; a suspended run is left to who has to
        decide. Entering raises RequestRefused for what the profile does not allow.
        """
        message = open_message(options, "cancel")
        return open_block(lambda: self._opened(message), options.get("on_disconnect") == "keep")

    async def open_run(self, **options: Unpack[RunOptions]) -> AsyncRun:
        """Begin a run that outlives this client, unless ``on_disconnect="cancel"``."""
        return await self._opened(open_message(options, "keep"))

    async def agent(
        self,
        task: str,
        *,
        model: str | None = None,
        constraints: Sequence[str] = (),
        plan: bool = False,
        **options: Unpack[RunOptions],
    ) -> AsyncRun:
        """Begin a run that the daemon steers itself, with ``model`` (``openai:NAME``; ``scripted:FILE``, with its whole
        path; None: the one that the daemon's environment names). ``constraints``: lines that the model always sees;
        ``plan``: first a plan, then its steps. It is kept; ``wait`` for it, or follow its ``events``.

        Raises RequestRefused, also for a model that cannot be had.
        """
        agent = AgentOptions(model, plan, listed("constraints", constraints))
        options["goal"] = task
        return await self._opened(open_message(options, "keep", agent))

    def attach_run(self, run: str) -> AsyncRun:
        """A handle on any run of the same user, by its id; whether there is one shows at its first use."""
        return AsyncRun(self, run)

    async def runs(self, *, all: bool = False) -> list[RunRow]:  # noqa: A002  # the word of the wire
        """Runs that go on or are suspended, newest first; with ``all`` also those that have ended."""
        return (await self._ask(cm.ListRuns(id=0, all=all), cm.Runs)).runs

    async def approvals(self, *, run: str | None = None, all: bool = False) -> list[ApprovalView]:  # noqa: A002  # likewise
        """Calls that wait for a person, oldest first; with ``all`` also those that were decided."""
        return (await self._ask(cm.ListApprovals(id=0, run=run, all=all), cm.Approvals)).approvals

    async def approve(
        self,
        approval: str,
        *,
        note: str = "",
        arguments: Arguments | None = None,
        scope: Literal["call", "same_args", "tool"] = "call",
    ) -> cm.Decided:
        """Let a call run, with other ``arguments`` if given, and what ``scope`` says in its run after it. ``call`` of
        the answer is what it became: ``handle(…).wait()``. Approving again answers with the same call. Raises
        RequestRefused when that cannot be any more."""
        text = None if arguments is None else arguments_text(arguments)
        return await self._ask(
            cm.Decide(id=0, approval=approval, decision="approve", note=note, arguments=text, scope=scope), cm.Decided
        )

    async def reject(
        self, approval: str, *, note: str = "", then: Literal["feedback", "stop"] = "feedback"
    ) -> cm.Decided:
        """Do not let a call run: its run hears ``note`` and goes on, or ends (``then="stop"``)."""
        return await self._ask(cm.Decide(id=0, approval=approval, decision="reject", note=note, then=then), cm.Decided)

    async def effects(self, *, run: str | None = None) -> list[OpenEffect]:
        """Calls that may have changed something and nobody knows, oldest first."""
        return (await self._ask(cm.ListEffects(id=0, run=run), cm.Effects)).effects

    async def close_effect(self, call: str, note: str) -> OpenEffect:
        """Somebody has looked what became of ``call``, and ``note`` says it."""
        return (await self._ask(cm.CloseEffect(id=0, call=call, note=note), cm.EffectClosed)).effect

    async def metrics(self) -> str:
        """The daemon's metrics in the text format of Prometheus."""
        return (await self._ask(cm.AskMetrics(id=0), cm.Metrics)).text

    async def tools(self, name: str | None = None) -> list[ToolDescription]:
        """Contracts and JSON schemas of every tool, or of the one called ``name``."""
        return (await self._ask(cm.ListTools(id=0, name=name), cm.Tools)).tools

    async def status(self) -> cm.DaemonStatus:
        """The daemon's health; ``degraded`` empty = healthy."""
        return await self._ask(cm.AskStatus(id=0), cm.DaemonStatus)

    async def processes(self) -> list[cm.ProcessRow]:
        """Workers and calls with the time left to their deadlines."""
        return (await self._ask(cm.ListProcesses(id=0), cm.Processes)).rows

    async def events(
        self, *, after: int = 0, call: str | None = None, run: str | None = None, follow: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Committed events of the daemon's log behind number ``after``, or those of one call or run; with ``follow``,
        what happens from then on too: without end, or until the run has settled."""
        cursor = EventCursor(after, call, follow, run)
        while not cursor.ended:
            for event in cursor.take(await self._ask(cursor.next_request(), cm.Events)):
                yield event

    async def config(self) -> cm.EffectiveConfig:
        """The configuration in force, with where each value came from."""
        return await self._ask(cm.AskConfig(id=0), cm.EffectiveConfig)

    async def _opened(self, message: cm.OpenRun) -> AsyncRun:
        return AsyncRun(self, (await self._ask(message, cm.RunOpened)).run.run)

    async def _ask(self, request: cm.Request, kind: type[Kind]) -> Kind:
        return (await self._line.answered(request)).outcome(kind)

    async def _connect(self) -> ByteStream:
        """Raises what the blocking client raises."""
        with anyio.move_on_after(self._answer_timeout_s):
            while (stream := await self._let_in()) is None:
                await anyio.sleep(AGAIN_S)
            return stream
        raise DaemonSilent("connection", self._answer_timeout_s)

    async def _let_in(self) -> ByteStream | None:
        """None: as many wait for the daemon as may. (Whoever waits until such a socket is writable is told that it is,
        though it is not connected.)"""
        try:
            stream = await anyio.connect_unix(self._path)
        except OSError as error:
            raise DaemonNotRunning(self._path, error) from error
        try:
            stream.extra(SocketAttribute.raw_socket).getpeername()  # noqa: S610  # of anyio, and no database
        except OSError:
            await stream.aclose()
            return None
        return stream

    async def _over(self, exchange: Exchange) -> None:
        await self._line.wait_until(exchange, lambda: exchange.over)

    async def _end_in_daemon(self, exchange: Exchange) -> None:
        """End what a cancelled caller started, and stay until the daemon confirms it: shielded, bounded."""
        if exchange.over:
            return
        self._line.ask_nowait(cm.Cancel(id=0, submit=exchange.request.id))
        with anyio.move_on_after(CANCEL_WAIT_S, shield=True):
            await self._over(exchange)
