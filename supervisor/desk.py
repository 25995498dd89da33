"""Answers what clients ask: routes each message of a connection to who knows, and says the answer. No policy."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from protocol import _client_messages as cm
from protocol._deadlines import remaining_ms
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Reason, Status
from supervisor.approvals import Approvals
from supervisor.asker import Asker
from supervisor.calls import Calls
from supervisor.clock import now_ns
from supervisor.containment.census import Census
from supervisor.containment.workers import Worker
from supervisor.core import call as machine
from supervisor.core.respawn import Cause
from supervisor.core.tools import Tools
from supervisor.journal.outputs import read_range
from supervisor.journal.results import KeptCall
from supervisor.live_call import LiveCall
from supervisor.observe.desk import MetricsDesk
from supervisor.readers import EventReaders
from supervisor.run_desk import RunDesk

if TYPE_CHECKING:
    from supervisor.health import Health

_CHUNK = 256 << 10
_WAITS = 1_024


class Desk:
    """One per daemon. Every door's connections speak to it."""

    def __init__(
        self,
        calls: Calls,
        tools: Tools,
        health: Health,
        readers: EventReaders,
        runs: RunDesk,
        approvals: Approvals,
        metrics: MetricsDesk,
        config: tuple[dict[str, object], dict[str, str]],
    ) -> None:
        self._calls, self._tools, self._health, self._readers = calls, tools, health, readers
        self._runs, self._approvals, self._metrics = runs, approvals, metrics
        self._config = config
        self._census = Census()

    def take(self, asker: Asker, message: cm.FromClient) -> None:
        """Answer one message, now or when its call settles."""
        if isinstance(message, cm.RunRequest):
            self._runs.take(asker, message)
            return
        match message:
            case cm.Submit():
                self._submit(asker, message)
            case cm.Hello():
                self._greet(asker, message)
            case cm.Cancel():
                self._cancel(asker, message)
            case cm.Wait():
                self._wait(asker, message)
            case cm.ReadOutput():
                self._read_output(asker, message)
            case cm.ReadEvents():
                self._readers.ask(asker, message)
            case cm.ListApprovals() | cm.Decide():
                self._approvals.take(asker, message)
            case cm.ListEffects() | cm.CloseEffect():
                self._calls.effects.take(asker, message, self._calls.find)
            case _:
                self._show(asker, message)

    def _show(self, asker: Asker, ask: cm.LookRequest) -> None:
        """What the daemon is, has and has counted."""
        match ask:
            case cm.ListTools():
                self._list_tools(asker, ask)
            case cm.AskStatus():
                asker.say(self._health.status(ask.id))
            case cm.ListProcesses():
                asker.say(cm.Processes(ask.id, self._rows()))
            case cm.AskConfig():
                asker.say(cm.EffectiveConfig(ask.id, *self._config))
            case cm.AskMetrics():
                self._metrics.ask(asker, ask)

    def left(self, asker: Asker) -> None:
        """An asker is gone: nobody need tell it anything, and the calls that it held may end with it."""
        for request, call in asker.awaited.items():
            call.watchers.pop((asker, request), None)
        for call in list(asker.attached.values()):
            self._let_go(call)
        self._readers.left(asker)
        self._runs.left(asker)
        self._metrics.left(asker)
        asker.awaited.clear()
        asker.attached.clear()

    def _let_go(self, call: LiveCall) -> None:
        """A call ends with the last client that held it, unless somebody detached it."""
        call.holders -= 1
        if call.holders <= 0 and not call.detached:
            self._calls.end(call, Status.CANCELLED, Reason.DISCONNECT, "its client disconnected")

    def _greet(self, asker: Asker, hello: cm.Hello) -> None:
        if hello.version != cm.VERSION:
            text = f"protocol version {hello.version} is not spoken here; this daemon speaks {cm.VERSION}"
            asker.say(cm.Failed(None, ErrorInfo(ErrorClass.ARGUMENT, "unknown_version", text)))
            return
        host = self._health.containment
        asker.say(cm.Welcome(cm.VERSION, list(cm.FEATURES), os.getpid(), host, self._health.frame_limit))

    def _submit(self, asker: Asker, submit: cm.Submit) -> None:
        call = self._calls.submit(submit, asker.uid)
        again = isinstance(call, KeptCall) or call.deliveries > 0
        if isinstance(call, LiveCall):
            call.deliveries += 1
        if isinstance(call, LiveCall) and call.result is None:
            if submit.detach:
                self._detach(asker, submit, call, again)
                return
            if submit.announce:
                asker.say(cm.Submitted(submit.id, call.id, call.judged.deadline_ms))
            call.holders += 1
            asker.attached[submit.id] = call
        self._tell_when_settled(asker, submit.id, call, again)

    def _detach(self, asker: Asker, submit: cm.Submit, call: LiveCall, again: bool) -> None:
        """Submitted is a promise that outlives the daemon, so it is given when the call is on the disk; when that comes
        to nothing, the call's result is the answer."""
        submitted = cm.Submitted(submit.id, call.id, call.judged.deadline_ms)
        if call.planned:
            asker.say(submitted)
            return
        call.planners[asker, submit.id] = lambda: asker.say(submitted)
        self._tell_when_settled(asker, submit.id, call, again)
        self._calls.detach(call)

    def _wait(self, asker: Asker, wait: cm.Wait) -> None:
        call = self._find(asker, wait.id, wait.call)
        if call is None:
            return
        if isinstance(call, LiveCall) and call.result is None and wait.nowait:
            left = remaining_ms(call.judged.deadline_ns, now_ns())
            asker.say(cm.Pending(wait.id, call.id, left))
            return
        if len(asker.awaited) >= _WAITS:
            text = f"at most {_WAITS} waits at a time on one connection"
            asker.say(cm.Failed(wait.id, ErrorInfo(ErrorClass.OVERLOADED, "overloaded", text)))
            return
        if isinstance(call, LiveCall) and call.result is None:
            asker.awaited[wait.id] = call
        self._tell_when_settled(asker, wait.id, call)

    def _tell_when_settled(self, asker: Asker, request: int, call: LiveCall | KeptCall, again: bool = False) -> None:
        """``again``: to a delivery that ran nothing. That is said in this answer only: what is kept stays as it was."""
        tell = _replays(asker, request) if again else functools.partial(asker.settled, request)
        if call.result is not None:
            tell(call.result)
        elif isinstance(call, LiveCall):
            call.watchers[asker, request] = tell

    def _cancel(self, asker: Asker, cancel: cm.Cancel) -> None:
        call: LiveCall | KeptCall | None
        if cancel.submit is not None:
            reason, call = Reason.CLIENT, self._attached(asker, cancel.id, cancel.submit)
        else:
            reason, call = Reason.OPERATOR, self._find(asker, cancel.id, cancel.call or "")
        if call is None:
            return
        live = isinstance(call, LiveCall) and call.result is None
        asker.say(cm.CancelAccepted(cancel.id, call.id, live))
        if isinstance(call, LiveCall):
            self._calls.end(call, Status.CANCELLED, reason)
        self._approvals.withdraw(call.id, "cancelled")

    def _read_output(self, asker: Asker, ask: cm.ReadOutput) -> None:
        call = self._find(asker, ask.id, ask.call)
        if call is None:
            return
        if ask.offset < 0 or not 1 <= ask.limit <= _CHUNK:
            text = f"offset must be at least 0 and limit 1 to {_CHUNK}"
            asker.say(_failed(ask.id, "invalid_arguments", text))
            return
        settled = call.result is not None  # before the read: bytes written between the two are seen by the next ask
        path = _path_of(call, ask.stream)
        data = read_range(path, ask.offset, ask.limit) if path else b""
        if not data and _has_gone(call, ask):
            text = f"the raw output of {call.id} is not kept any more; see output_ttl_ms and output_quota_bytes"
            asker.say(_failed(ask.id, "output_gone", text))
            return
        asker.say(cm.OutputChunk(ask.id, call.id, ask.offset, data, settled))

    def _list_tools(self, asker: Asker, ask: cm.ListTools) -> None:
        found = self._tools.descriptions(ask.name)
        if ask.name is not None and not found:
            text = f"there is no tool {ask.name[:80]!r}; this daemon serves {', '.join(self._tools.names())}"
            asker.say(_failed(ask.id, "unknown_tool", text))
            return
        if ask.name is not None:
            found = [self._calls.environment.shown(tool) for tool in found]
        asker.say(cm.Tools(ask.id, found))

    def _find(self, asker: Asker, request: int, call_id: str) -> LiveCall | KeptCall | None:
        call = self._calls.find(call_id, asker.uid)
        if call is None:
            asker.say(_failed(request, "unknown_call", f"no call {call_id[:80]!r} is known here (any more)"))
        return call

    def _attached(self, asker: Asker, request: int, submit: int) -> LiveCall | None:
        call = asker.attached.get(submit)
        if call is None:
            asker.say(_failed(request, "unknown_call", f"no call of request {submit} is in flight here"))
        return call

    def _rows(self) -> list[cm.ProcessRow]:
        now = now_ns()
        workers = (worker for pool in self._calls.pools.values() for worker in pool.alive.values())
        rows = [_worker_row(worker, self._census, now) for worker in workers]
        served = {row.call for row in rows}
        for call in self._calls.live.values():
            if call.id not in served:
                left = remaining_ms(call.judged.deadline_ns, now)
                state = "backoff" if call.machine.state is machine.State.BACKOFF else "queued"
                rows.append(cm.ProcessRow(None, None, state, call.id, call.judged.tool, left))
        return rows


def _replays(asker: Asker, request: int) -> Callable[[CallResult], None]:
    return lambda result: asker.settled(request, msgspec.structs.replace(result, replayed=True))


def _worker_row(worker: Worker, census: Census, now: int) -> cm.ProcessRow:
    call: LiveCall | None = worker.call
    row = cm.ProcessRow(worker.number, worker.pid, _state_of(worker), slot=worker.slot)
    if call is not None:
        row.call, row.tool = call.id, call.judged.tool
        row.remaining_ms = remaining_ms(call.judged.deadline_ns, now)
    used = census.of(worker.pid, now)
    if used.processes:  # else it has ended while we looked: the row says what is known
        row.processes, row.rss_bytes, row.cpu_ms = used
    return row


def _state_of(worker: Worker) -> str:
    if worker.ended_for is not None:
        return "quarantined" if worker.ended_for is Cause.KILL_UNCONFIRMED else "ending"
    if worker.ready is None:
        return "starting"
    return "idle" if worker.call is None else "busy"


def _has_gone(call: LiveCall | KeptCall, ask: cm.ReadOutput) -> bool:
    """Whether bytes were written here that are not kept any more."""
    info = None if call.result is None else call.result.output.streams.get(ask.stream)
    return info is not None and info.path is not None and ask.offset < info.bytes


def _path_of(call: LiveCall | KeptCall, stream: str) -> str | None:
    result = call.result
    if result is not None:
        info = result.output.streams.get(stream)
        return info.path if info else None
    assert isinstance(call, LiveCall)
    for path in (*(open_stream.path for open_stream in call.streams), *call.files):
        if path.endswith(f"/{call.id}.{stream}"):
            return path
    if call.files:  # it has ended, and its worker's standing file may be another call's by now
        return None
    if call.worker is not None and stream == "both" and call.judged.contract.kind != "command":
        return call.worker.scratch.output_path
    return None


def _failed(request: int, code: str, text: str) -> cm.Failed:
    return cm.Failed(request, ErrorInfo(ErrorClass.ARGUMENT, code, text))
