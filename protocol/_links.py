"""Who may say what when, as tables. Both ends of a link run the same table, so a test can join two and find any
message that one may send and the other may not hear.

Rules
1. A link has one state; each (state, speaker, message) that is allowed names the next state. Nothing else is allowed.
2. A missing cell is somebody's fault and the error's type says whose: LocalProtocolError when we were about to say it,
   RemoteProtocolError when the peer did.
3. Client link: GREETING until Hello is answered by Welcome; then any request in any order; Failed without an id closes.
4. Worker link: one call at a time. A call is SENT until the worker says Accepted, RUNNING until Ended.
   Ended without Accepted means that no tool code was touched.
5. A worker's frame with the nonce of an earlier call is a straggler: it is counted and dropped, whatever the state.
   A nonce from the future is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from protocol import _client_messages as cm
from protocol import _worker_messages as wm
from protocol._errors import LocalProtocolError, RemoteProtocolError


class Speaker(Enum):
    """An end of a link."""

    CLIENT = auto()
    DAEMON = auto()
    WORKER = auto()


class ClientState(Enum):
    """States of a client's connection."""

    GREETING = auto()
    GREETED = auto()
    READY = auto()
    CLOSED = auto()


class WorkerState(Enum):
    """States of a worker's socket."""

    STARTING = auto()
    IDLE = auto()
    SENT = auto()
    RUNNING = auto()


ClientTable: TypeAlias = Mapping[tuple[ClientState, Speaker, type], ClientState]
WorkerTable: TypeAlias = Mapping[tuple[WorkerState, Speaker, type], WorkerState]

_REQUESTS = (
    cm.Submit,
    cm.Cancel,
    cm.Wait,
    cm.ReadOutput,
    cm.ListTools,
    cm.AskStatus,
    cm.ListProcesses,
    cm.AskConfig,
)
_ANSWERS = (
    cm.Submitted,
    cm.Settled,
    cm.Pending,
    cm.CancelAccepted,
    cm.OutputChunk,
    cm.Tools,
    cm.DaemonStatus,
    cm.Processes,
    cm.EffectiveConfig,
    cm.Failed,
)

CLIENT_LINK: ClientTable = {
    (ClientState.GREETING, Speaker.CLIENT, cm.Hello): ClientState.GREETED,
    (ClientState.GREETING, Speaker.DAEMON, cm.Failed): ClientState.CLOSED,
    (ClientState.GREETED, Speaker.DAEMON, cm.Welcome): ClientState.READY,
    (ClientState.GREETED, Speaker.DAEMON, cm.Failed): ClientState.CLOSED,
    **{(ClientState.READY, Speaker.CLIENT, kind): ClientState.READY for kind in _REQUESTS},
    **{(ClientState.READY, Speaker.DAEMON, kind): ClientState.READY for kind in _ANSWERS},
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
    """One end of a client's connection."""

    __slots__ = ("_peer", "_us", "state")

    def __init__(self, us: Speaker) -> None:
        self.state = ClientState.GREETING
        self._us = us
        self._peer = Speaker.DAEMON if us is Speaker.CLIENT else Speaker.CLIENT

    def say(self, message: cm.FromClient | cm.FromDaemon) -> None:
        """We are about to send ``message``. Raises LocalProtocolError when it is not ours to say now."""
        state = CLIENT_LINK.get((self.state, self._us, type(message)))
        if state is None:
            raise LocalProtocolError(_not_now(self._us, message, self.state))
        self.state = _closing(message) or state

    def hear(self, message: cm.FromClient | cm.FromDaemon) -> None:
        """The peer sent ``message``. Raises RemoteProtocolError when it was not its to say now."""
        state = CLIENT_LINK.get((self.state, self._peer, type(message)))
        if state is None:
            raise RemoteProtocolError(_not_now(self._peer, message, self.state))
        self.state = _closing(message) or state


class WorkerLink:
    """One end of a worker's socket. ``nonce`` is the call that is, or was last, on it; ``stragglers`` counts rule 5."""

    __slots__ = ("_peer", "_us", "nonce", "state", "stragglers")

    def __init__(self, us: Speaker) -> None:
        self.state = WorkerState.STARTING
        self.nonce = 0
        self.stragglers = 0
        self._us = us
        self._peer = Speaker.DAEMON if us is Speaker.WORKER else Speaker.WORKER

    def say(self, message: wm.FromWorker | wm.ToWorker) -> None:
        """We are about to send ``message``. Raises LocalProtocolError when it is not ours to say now."""
        state = WORKER_LINK.get((self.state, self._us, type(message)))
        if state is None or not self._nonce_fits(message):
            raise LocalProtocolError(_not_now(self._us, message, self.state))
        self.state = state

    def hear(self, message: wm.FromWorker | wm.ToWorker) -> bool:
        """The peer sent ``message``; False: a straggler, drop it. Raises RemoteProtocolError when it may not say it."""
        if isinstance(message, (wm.Accepted, wm.Progress, wm.Ended)) and message.nonce < self.nonce:
            self.stragglers += 1
            return False
        state = WORKER_LINK.get((self.state, self._peer, type(message)))
        if state is None or not self._nonce_fits(message):
            raise RemoteProtocolError(_not_now(self._peer, message, self.state))
        self.state = state
        return True

    def _nonce_fits(self, message: wm.FromWorker | wm.ToWorker) -> bool:
        if isinstance(message, wm.Call):
            if message.nonce <= self.nonce:
                return False
            self.nonce = message.nonce
            return True
        return isinstance(message, wm.WorkerReady) or message.nonce == self.nonce


def _closing(message: object) -> ClientState | None:
    return ClientState.CLOSED if isinstance(message, cm.Failed) and message.id is None else None


def _not_now(speaker: Speaker, message: object, state: ClientState | WorkerState) -> str:
    return f"{speaker.name.lower()} may not say {type(message).__name__} while the link is {state.name.lower()}"
