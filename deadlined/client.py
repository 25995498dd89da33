"""The synchronous client: one connection, usable from any number of threads.

Owns the words of the Python interface. The wire is ``_conversation``'s, the socket ``_blocking``'s.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Literal, Unpack

from deadlined._arguments import Arguments, SubmitOptions, arguments_text, submit_message
from deadlined._blocking import BlockingLine, connect
from deadlined._conversation import Exchange, Kind, cancel_of, was_live
from deadlined._following import POLL_S, EventCursor, OutputCursor
from deadlined._run_words import RunOptions, listed, open_message
from deadlined.runs import Run, open_block
from protocol import _client_messages as cm
from protocol._contracts import ToolDescription
from protocol._events import Event
from protocol._outcomes import CallResult
from protocol._places import find_socket
from protocol._runs import AgentOptions, ApprovalView, OpenEffect, RunRow

ANSWER_TIMEOUT_S = 30.0
CANCEL_WAIT_S = 10.0
"""How long an interrupted ``call`` waits for the confirmed end of what it started."""


class CallHandle:
    """One call by its id: the one just submitted, or any call of the same user."""

    def __init__(
        self, client: Client, call: str, submitted: Exchange | None = None, deadline_ms: int | None = None
    ) -> None:
        self.call = call
        self.deadline_ms = deadline_ms
        """The budget that holds, where this connection submitted the call."""
        self._client = client
        self._end = submitted
        """The exchange whose answer is the call's Settled: its submit, or a Wait once somebody waits."""

    @property
    def settled(self) -> CallResult | None:
        """The final result, if it has been heard here already; asks nobody."""
        return self._end.outcome(cm.Settled).result if self._end and self._end.answer else None

    def wait(self, timeout_s: float | None = None) -> CallResult:
        """The final result, when the call has settled. Raises TimeoutError after ``timeout_s``: the call goes on."""
        if self._end is None:
            self._end = self._client._line.ask(cm.Wait(id=0, call=self.call))
        end = self._end
        if not self._client._line.wait_until(lambda: end.over, timeout_s):
            raise TimeoutError(f"the call has not settled within {timeout_s:g} s; it goes on")
        return end.outcome(cm.Settled).result

    def result(self) -> CallResult | None:
        """The final result if the call has settled; None while it runs."""
        state = self.settled or self.peek()
        return None if isinstance(state, cm.Pending) else state

    def peek(self) -> CallResult | cm.Pending:
        """Ask once: the final result, or the time that is left."""
        asked = self._client._line.answered(cm.Wait(id=0, call=self.call, nowait=True))
        return asked.answer if isinstance(asked.answer, cm.Pending) else asked.outcome(cm.Settled).result

    def cancel(self) -> bool:
        """Have the call ended now; ``wait`` returns when its end is confirmed. False: it had settled already."""
        if self.settled is not None:
            return False
        return was_live(self._client._line.answered(cancel_of(self.call, self._end)))

    def output(self, *, stream: str = "both", follow: bool = True) -> Iterator[bytes]:
        """Raw output as it is written, until the call has settled; without ``follow``, what is there now."""
        cursor = OutputCursor(self.call, stream)
        while True:
            data = cursor.take(self._client._ask(cursor.next_request(), cm.OutputChunk))
            if data:
                yield data
            if cursor.ended or (cursor.caught_up and not follow):
                return
            if cursor.caught_up:
                time.sleep(POLL_S)


class Client:
    """A connection to the daemon at ``socket``, else where the command line would look.

    Raises DaemonNotRunning when there is none. Use it as a context manager; closing it ends the calls that were
    submitted on it and not detached.
    """

    def __init__(self, socket: str | None = None, *, name: str = "python", answer_timeout_s: float = ANSWER_TIMEOUT_S):
        self._line = BlockingLine(connect(find_socket(socket), answer_timeout_s), name, answer_timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and with it every call of it that has not settled and was not detached."""
        self._line.close()

    def call(self, tool: str, arguments: Arguments | None = None, **options: Unpack[SubmitOptions]) -> CallResult:
        """Run ``tool`` and return its result, whatever it is.

        Raises ValueError for arguments that JSON cannot carry, ConnectionLost when the daemon went away meanwhile.
        Interrupted (Ctrl-C), it cancels the call in the daemon and waits up to 10 s for its confirmed end.
        """
        exchange = self._line.ask(submit_message(tool, arguments, options))
        try:
            self._line.wait_until(lambda: exchange.over, None)
        except BaseException:
            self._end_in_daemon(exchange)
            raise
        return exchange.outcome(cm.Settled).result

    def submit(
        self, tool: str, arguments: Arguments | None = None, *, detach: bool = False, **options: Unpack[SubmitOptions]
    ) -> CallHandle:
        """Start ``tool`` and return once the daemon has accepted it. A detached call outlives this client.

        Raises what ``call`` raises; a call that was not executed shows in the handle's result.
        """
        message = submit_message(tool, arguments, options)
        message.announce, message.detach = True, detach
        exchange = self._line.ask(message)
        try:
            self._line.wait_until(lambda: exchange.announced, None)
        except BaseException:
            self._end_in_daemon(exchange)
            raise
        return CallHandle(self, exchange.call(), None if exchange.detached else exchange, exchange.deadline_ms)

    def handle(self, call: str) -> CallHandle:
        """A handle on any call of the same user, by its id; whether there is one shows at its first use."""
        return CallHandle(self, call)

    def run(self, **options: Unpack[RunOptions]) -> AbstractContextManager[Run]:
        """A run for the length of a ``with`` block: leaving it cancels the run if it still runs, and its calls with it.

        With ``on_disconnect="keep"`` only an exception does; a suspended run is left to who has to decide. Entering
        raises RequestRefused for what the profile does not allow.
        """
        message = open_message(options, "cancel")
        return open_block(lambda: self._opened(message), options.get("on_disconnect") == "keep")

    def open_run(self, **options: Unpack[RunOptions]) -> Run:
        """Begin a run that outlives this client, unless ``on_disconnect="cancel"``."""
        return self._opened(open_message(options, "keep"))

    def agent(
        self,
        task: str,
        *,
        model: str | None = None,
        constraints: Sequence[str] = (),
        plan: bool = False,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Begin a run that the daemon steers itself, with ``model`` (``openai:NAME``; ``scripted:FILE``, with its whole
        path; None: the one that the daemon's environment names). ``constraints``: lines that the model always sees;
        ``plan``: first a plan, then its steps. It is kept; ``wait`` for it, or follow its ``events``.

        Raises RequestRefused, also for a model that cannot be had.
        """
        agent = AgentOptions(model, plan, listed("constraints", constraints))
        options["goal"] = task
        return self._opened(open_message(options, "keep", agent))

    def attach_run(self, run: str) -> Run:
        """A handle on any run of the same user, by its id; whether there is one shows at its first use."""
        return Run(self, run)

    def runs(self, *, all: bool = False) -> list[RunRow]:  # noqa: A002  # the word of the wire
        """Runs that go on or are suspended, newest first; with ``all`` also those that have ended."""
        return self._ask(cm.ListRuns(id=0, all=all), cm.Runs).runs

    def approvals(self, *, run: str | None = None, all: bool = False) -> list[ApprovalView]:  # noqa: A002  # likewise
        """Calls that wait for a person, oldest first; with ``all`` also those that were decided."""
        return self._ask(cm.ListApprovals(id=0, run=run, all=all), cm.Approvals).approvals

    def approve(
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
        return self._ask(
            cm.Decide(id=0, approval=approval, decision="approve", note=note, arguments=text, scope=scope), cm.Decided
        )

    def reject(self, approval: str, *, note: str = "", then: Literal["feedback", "stop"] = "feedback") -> cm.Decided:
        """Do not let a call run: its run hears ``note`` and goes on, or ends (``then="stop"``)."""
        return self._ask(cm.Decide(id=0, approval=approval, decision="reject", note=note, then=then), cm.Decided)

    def effects(self, *, run: str | None = None) -> list[OpenEffect]:
        """Calls that may have changed something and nobody knows, oldest first."""
        return self._ask(cm.ListEffects(id=0, run=run), cm.Effects).effects

    def close_effect(self, call: str, note: str) -> OpenEffect:
        """Somebody has looked what became of ``call``, and ``note`` says it."""
        return self._ask(cm.CloseEffect(id=0, call=call, note=note), cm.EffectClosed).effect

    def metrics(self) -> str:
        """The daemon's metrics in the text format of Prometheus."""
        return self._ask(cm.AskMetrics(id=0), cm.Metrics).text

    def tools(self, name: str | None = None) -> list[ToolDescription]:
        """Contracts and JSON schemas of every tool, or of the one called ``name``."""
        return self._ask(cm.ListTools(id=0, name=name), cm.Tools).tools

    def status(self) -> cm.DaemonStatus:
        """The daemon's health; ``degraded`` empty = healthy."""
        return self._ask(cm.AskStatus(id=0), cm.DaemonStatus)

    def processes(self) -> list[cm.ProcessRow]:
        """Workers and calls with the time left to their deadlines."""
        return self._ask(cm.ListProcesses(id=0), cm.Processes).rows

    def events(
        self, *, after: int = 0, call: str | None = None, run: str | None = None, follow: bool = False
    ) -> Iterator[Event]:
        """Committed events of the daemon's log behind number ``after``, or those of one call or run; with ``follow``,
        what happens from then on too: without end, or until the run has settled."""
        cursor = EventCursor(after, call, follow, run)
        while not cursor.ended:
            yield from cursor.take(self._ask(cursor.next_request(), cm.Events))

    def config(self) -> cm.EffectiveConfig:
        """The configuration in force, with where each value came from."""
        return self._ask(cm.AskConfig(id=0), cm.EffectiveConfig)

    def _opened(self, message: cm.OpenRun) -> Run:
        return Run(self, self._ask(message, cm.RunOpened).run.run)

    def _ask(self, request: cm.Request, kind: type[Kind]) -> Kind:
        return self._line.answered(request).outcome(kind)

    def _end_in_daemon(self, exchange: Exchange) -> None:
        """End what an interrupted caller started, and stay until the daemon confirms it (bounded)."""
        if not exchange.over:
            self._line.ask(cm.Cancel(id=0, submit=exchange.request.id))
            self._line.wait_until(lambda: exchange.over, CANCEL_WAIT_S)
