"""Who may say what when, as tables. Both ends of a link run the same table, so a test can join two and find any
message that one may send and the other may not hear.

Rules
1. A link has one state; each (state, speaker, message) that is allowed names the next state. Nothing else is allowed.
2. A missing cell is somebody's fault and the error's type says whose: LocalProtocolError when we were about to say it,
   RemoteProtocolError when the peer did. Whoever gets either leaves the link as it was.
3. Client link: GREETING until Hello is answered by Welcome; then any request in any order; Failed without an id closes.
4. A request's id is open from the request to its last answer, and EXCHANGES says which answers may come. An id that is
   open cannot be used again; an answer to one that is not is a fault.
5. Behind the daemon's closing Failed its end hears nothing: what the client said before it knew is dropped, unjudged.
6. Worker link: one call at a time. A call is SENT until the worker says Accepted, RUNNING until Ended.
   Ended without Accepted means that no tool code was touched, and only the ways to end of `UNTOUCHED` may say so.
   A Call that wants no Accepted is RUNNING from the start.
7. A worker's frame with the nonce of an earlier call is a straggler: it is counted and dropped, whatever the state.
   A nonce from the future is a fault, and so are more than STRAGGLER_LIMIT stragglers: that worker is not forgetful.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from protocol import _client_messages as cm
from protocol import _worker_messages as wm
from protocol._errors import LocalProtocolError, ProtocolError, RemoteProtocolError

STRAGGLER_LIMIT = 64


class Speaker(Enum):
    """An end of a link."""

    __hash__ = object.__hash__  # identity: Enum's own is a Python function, and tables are read per message

    CLIENT = auto()
    DAEMON = auto()
    WORKER = auto()


class ClientState(Enum):
    """States of a client's connection."""

    __hash__ = object.__hash__  # identity: Enum's own is a Python function, and tables are read per message

    GREETING = auto()
    GREETED = auto()
    READY = auto()
    CLOSED = auto()


class Awaited(Enum):
    """What an open id still waits for."""

    __hash__ = object.__hash__  # identity: Enum's own is a Python function, and tables are read per message

    END = auto()
    """Settled: a plain submit, or one whose Submitted has come."""
    ANNOUNCEMENT = auto()
    """Submitted, then Settled; Settled at once when the call is refused."""
    ACCEPTANCE = auto()
    """Submitted, and nothing after it: detached. Settled instead when the call is refused."""
    CANCEL = auto()
    WAIT = auto()
    OUTPUT = auto()
    TOOLS = auto()
    STATUS = auto()
    PROCESSES = auto()
    EVENTS = auto()
    OPENED = auto()
    STEP = auto()
    MODEL = auto()
    NOTES = auto()
    EVIDENCE = auto()
    FINISH = auto()
    RUN_END = auto()
    RUN = auto()
    RUNS = auto()
    APPROVALS = auto()
    DECISION = auto()
    EFFECTS = auto()
    CLOSING = auto()
    METRICS = auto()
    CONFIG = auto()


class WorkerState(Enum):
    """States of a worker's socket."""

    __hash__ = object.__hash__  # identity: Enum's own is a Python function, and tables are read per message

    STARTING = auto()
    IDLE = auto()
    SENT = auto()
    RUNNING = auto()


ClientTable: TypeAlias = Mapping[tuple[ClientState, Speaker, type], ClientState]
ExchangeTable: TypeAlias = Mapping[tuple[Awaited, type], Awaited | None]
WorkerTable: TypeAlias = Mapping[tuple[WorkerState, Speaker, type], WorkerState]

_REQUESTS: Mapping[type, Awaited] = {
    cm.Submit: Awaited.END,
    cm.Cancel: Awaited.CANCEL,
    cm.Wait: Awaited.WAIT,
    cm.ReadOutput: Awaited.OUTPUT,
    cm.ListTools: Awaited.TOOLS,
    cm.AskStatus: Awaited.STATUS,
    cm.ListProcesses: Awaited.PROCESSES,
    cm.ReadEvents: Awaited.EVENTS,
    cm.OpenRun: Awaited.OPENED,
    cm.StepRun: Awaited.STEP,
    cm.ReserveModel: Awaited.MODEL,
    cm.SettleModel: Awaited.STEP,
    cm.RetryModel: Awaited.STEP,
    cm.RefuseCall: Awaited.STEP,
    cm.AskPerson: Awaited.RUN_END,
    cm.StopRun: Awaited.RUN_END,
    cm.KeepNotes: Awaited.STEP,
    cm.ReadNotes: Awaited.NOTES,
    cm.AddEvidence: Awaited.EVIDENCE,
    cm.FinishRun: Awaited.FINISH,
    cm.CancelRun: Awaited.RUN_END,
    cm.WaitRun: Awaited.RUN_END,
    cm.ResumeRun: Awaited.STEP,
    cm.ShowRun: Awaited.RUN,
    cm.ListRuns: Awaited.RUNS,
    cm.ListApprovals: Awaited.APPROVALS,
    cm.Decide: Awaited.DECISION,
    cm.ListEffects: Awaited.EFFECTS,
    cm.CloseEffect: Awaited.CLOSING,
    cm.AskMetrics: Awaited.METRICS,
    cm.AskConfig: Awaited.CONFIG,
}
EXCHANGES: ExchangeTable = {
    (Awaited.END, cm.Settled): None,
    (Awaited.ANNOUNCEMENT, cm.Submitted): Awaited.END,
    (Awaited.ANNOUNCEMENT, cm.Settled): None,
    (Awaited.ACCEPTANCE, cm.Submitted): None,
    (Awaited.ACCEPTANCE, cm.Settled): None,
    (Awaited.CANCEL, cm.CancelAccepted): None,
    (Awaited.WAIT, cm.Settled): None,
    (Awaited.WAIT, cm.Pending): None,
    (Awaited.OUTPUT, cm.OutputChunk): None,
    (Awaited.TOOLS, cm.Tools): None,
    (Awaited.STATUS, cm.DaemonStatus): None,
    (Awaited.PROCESSES, cm.Processes): None,
    (Awaited.EVENTS, cm.Events): None,
    (Awaited.OPENED, cm.RunOpened): None,
    (Awaited.STEP, cm.RunState): None,
    (Awaited.STEP, cm.RunSettled): None,
    (Awaited.MODEL, cm.ModelReserved): None,
    (Awaited.MODEL, cm.RunSettled): None,
    (Awaited.NOTES, cm.RunNotes): None,
    (Awaited.EVIDENCE, cm.EvidenceTaken): None,
    (Awaited.EVIDENCE, cm.RunSettled): None,
    (Awaited.FINISH, cm.FinishRefused): None,
    (Awaited.FINISH, cm.RunSettled): None,
    (Awaited.RUN_END, cm.RunSettled): None,
    (Awaited.RUN, cm.RunState): None,
    (Awaited.RUNS, cm.Runs): None,
    (Awaited.APPROVALS, cm.Approvals): None,
    (Awaited.DECISION, cm.Decided): None,
    (Awaited.EFFECTS, cm.Effects): None,
    (Awaited.CLOSING, cm.EffectClosed): None,
    (Awaited.METRICS, cm.Metrics): None,
    (Awaited.CONFIG, cm.EffectiveConfig): None,
    **{(awaited, cm.Failed): None for awaited in Awaited},
}
"""What an answer leaves an id waiting for; None: it was the last."""

CLIENT_LINK: ClientTable = {
    (ClientState.GREETING, Speaker.CLIENT, cm.Hello): ClientState.GREETED,
    (ClientState.GREETING, Speaker.DAEMON, cm.Failed): ClientState.CLOSED,
    (ClientState.GREETED, Speaker.DAEMON, cm.Welcome): ClientState.READY,
    (ClientState.GREETED, Speaker.DAEMON, cm.Failed): ClientState.CLOSED,
    **{(ClientState.READY, Speaker.CLIENT, kind): ClientState.READY for kind in _REQUESTS},
    **{(ClientState.READY, Speaker.DAEMON, kind): ClientState.READY for _, kind in EXCHANGES},
}

WORKER_LINK: WorkerTable = {
    (WorkerState.STARTING, Speaker.WORKER, wm.WorkerReady): WorkerState.IDLE,
    (WorkerState.IDLE, Speaker.DAEMON, wm.Call): WorkerState.SENT,
    (WorkerState.SENT, Speaker.WORKER, wm.Accepted): WorkerState.RUNNING,
    (WorkerState.SENT, Speaker.WORKER, wm.Ended): WorkerState.IDLE,
    (WorkerState.RUNNING, Speaker.WORKER, wm.Progress): WorkerState.RUNNING,
    (WorkerState.RUNNING, Speaker.WORKER, wm.Ended): WorkerState.IDLE,
}


class ClientLink:
    """One end of a client's connection. ``open`` holds what each request that was not fully answered waits for."""

    __slots__ = ("_peer", "_us", "open", "state")

    def __init__(self, us: Speaker) -> None:
        self.state = ClientState.GREETING
        self.open: dict[int, Awaited] = {}
        self._us = us
        self._peer = Speaker.DAEMON if us is Speaker.CLIENT else Speaker.CLIENT

    def say(self, message: cm.FromClient | cm.FromDaemon) -> None:
        """We are about to send ``message``. Raises LocalProtocolError when it is not ours to say now."""
        self._step(self._us, message, LocalProtocolError)

    def hear(self, message: cm.FromClient | cm.FromDaemon) -> bool:
        """The peer sent ``message``; False: rule 5, drop it. Raises RemoteProtocolError when it may not say it now."""
        if self.state is ClientState.CLOSED and self._us is Speaker.DAEMON:
            return False
        self._step(self._peer, message, RemoteProtocolError)
        return True

    def _step(self, speaker: Speaker, message: cm.FromClient | cm.FromDaemon, blame: type[ProtocolError]) -> None:
        state = CLIENT_LINK.get((self.state, speaker, type(message)))
        if state is None:
            raise blame(_not_now(speaker, message, self.state))
        if isinstance(message, (cm.Hello, cm.Welcome)):
            self.state = state
        elif message.id is None:  # Failed alone has that freedom
            self.state = ClientState.CLOSED
        elif speaker is Speaker.CLIENT:
            self._ask(message.id, message, blame)
        else:
            self._answer(message.id, message, blame)

    def _ask(self, number: int, request: object, blame: type[ProtocolError]) -> None:
        if number in self.open:
            raise blame(f"{type(request).__name__} uses the id {number}, which waits for an answer already")
        self.open[number] = _awaited(request)

    def _answer(self, number: int, answer: object, blame: type[ProtocolError]) -> None:
        kind = type(answer)
        awaited = self.open.get(number)
        if awaited is None:
            raise blame(f"{kind.__name__} answers the id {number}, which waits for nothing")
        if (awaited, kind) not in EXCHANGES:
            raise blame(f"{kind.__name__} is no answer to the id {number}, which waits for {awaited.name.lower()}")
        rest = EXCHANGES[awaited, kind]
        if rest is None:
            del self.open[number]
        else:
            self.open[number] = rest


class WorkerLink:
    """One end of a worker's socket. ``nonce`` is the call that is, or was last, on it; ``stragglers`` counts rule 7."""

    __slots__ = ("_peer", "_us", "nonce", "state", "stragglers")

    def __init__(self, us: Speaker) -> None:
        self.state = WorkerState.STARTING
        self.nonce = 0
        self.stragglers = 0
        self._us = us
        self._peer = Speaker.DAEMON if us is Speaker.WORKER else Speaker.WORKER

    def say(self, message: wm.FromWorker | wm.ToWorker) -> None:
        """We are about to send ``message``. Raises LocalProtocolError when it is not ours to say now."""
        self._step(self._us, message, LocalProtocolError)

    def hear(self, message: wm.FromWorker | wm.ToWorker) -> bool:
        """The peer sent ``message``; False: a straggler, drop it. Raises RemoteProtocolError when it may not say it."""
        if isinstance(message, (wm.Accepted, wm.Progress, wm.Ended)) and message.nonce < self.nonce:
            self.stragglers += 1
            if self.stragglers > STRAGGLER_LIMIT:
                raise RemoteProtocolError(f"more than {STRAGGLER_LIMIT} frames of calls that are over")
            return False
        self._step(self._peer, message, RemoteProtocolError)
        return True

    def _step(self, speaker: Speaker, message: wm.FromWorker | wm.ToWorker, blame: type[ProtocolError]) -> None:
        state = WORKER_LINK.get((self.state, speaker, type(message)))
        if state is None:
            raise blame(_not_now(speaker, message, self.state))
        if isinstance(message, wm.Call):
            if message.nonce <= self.nonce:
                raise blame(f"Call has the nonce {message.nonce}; the last was {self.nonce}")
            self.nonce = message.nonce
            state = state if message.accepts else WorkerState.RUNNING
        elif not isinstance(message, wm.WorkerReady):
            self._own_call(message, blame)
        self.state = state

    def _own_call(self, message: wm.Accepted | wm.Progress | wm.Ended, blame: type[ProtocolError]) -> None:
        if message.nonce != self.nonce:
            raise blame(f"{type(message).__name__} has the nonce {message.nonce}; the call is {self.nonce}")
        if self.state is WorkerState.SENT and isinstance(message, wm.Ended) and message.how not in wm.UNTOUCHED:
            raise blame(f"Ended says {message.how} of a call that was never accepted")


def _awaited(request: object) -> Awaited:
    if isinstance(request, cm.Submit) and request.detach:
        return Awaited.ACCEPTANCE
    if isinstance(request, cm.Submit) and request.announce:
        return Awaited.ANNOUNCEMENT
    return _REQUESTS[type(request)]


def _not_now(speaker: Speaker, message: object, state: ClientState | WorkerState) -> str:
    return f"{speaker.name.lower()} may not say {type(message).__name__} while the link is {state.name.lower()}"
