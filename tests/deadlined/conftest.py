"""A daemon of a few lines in a thread: it hears through the real codec and link, and does what a test tells it."""

import contextlib
import itertools
import socket
import threading

import pytest

from protocol import _client_messages as cm
from protocol._budgets import DimensionView
from protocol._codecs import daemon_to_client
from protocol._framing import FRAME_LIMIT, FrameBuffer
from protocol._links import ClientLink, Speaker
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Reason, Status
from protocol._runs import SUSPENDED, RunDeadline, RunReason, RunStatus, RunView, StopRecord


class FakeDaemon:
    """Accepts clients; ``on[kind]`` (message → list of answers, or None to close) overrides an answer.

    By default a call of tool ``hang`` settles when it is cancelled, any other at once.
    """

    def __init__(self, path):
        self.path = str(path)
        self.heard = []
        self.connections = []
        self.on = {}
        self._hanging = {}
        self._numbers = itertools.count(1)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        link, codec, frames = ClientLink(Speaker.DAEMON), daemon_to_client(False), FrameBuffer()
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                for body in frames.feed(data):
                    message = codec.unpack(body)
                    link.hear(message)
                    self.heard.append(message)
                    answers = self.on.get(type(message), self.answers)(message)
                    if answers is None:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    for answer in answers:
                        if isinstance(answer, bytes):
                            connection.sendall(answer)
                            continue
                        link.say(answer)
                        connection.sendall(codec.pack(answer))

    def answers(self, message):
        match message:
            case cm.Hello():
                return [cm.Welcome(1, [], 1, "pidns", FRAME_LIMIT)]
            case cm.Submit():
                return self._submitted(message)
            case cm.Cancel():
                return self._cancelled(message)
            case cm.Wait(call=call, nowait=nowait):
                if call in self._hanging:
                    return [cm.Pending(message.id, call, 500)] if nowait else []
                return [cm.Settled(message.id, _result(call))]
            case cm.ListTools():
                return [cm.Tools(message.id, [])]
            case cm.ListProcesses():
                return [cm.Processes(message.id, [])]
        raise AssertionError(f"the fake daemon has no answer to {message}")

    def _submitted(self, message):
        call = f"c_{next(self._numbers)}"
        announced = [cm.Submitted(message.id, call, 5000)] if message.announce or message.detach else []
        if message.tool == "hang":
            self._hanging[call] = message.id
            return announced
        return announced + ([] if message.detach else [cm.Settled(message.id, _result(call))])

    def _cancelled(self, message):
        for call, submit in list(self._hanging.items()):
            if submit == message.submit or call == message.call:
                del self._hanging[call]
                ended = _result(call, Status.CANCELLED, Reason.CLIENT if message.submit else Reason.OPERATOR)
                return [cm.CancelAccepted(message.id, call, True), cm.Settled(submit, ended)]
        if message.submit is not None:
            return [cm.Failed(message.id, ErrorInfo(ErrorClass.ARGUMENT, "unknown_call", "no such request"))]
        return [cm.CancelAccepted(message.id, message.call or "c_0", False)]


def _result(call, status=Status.OK, reason=None):
    return CallResult(call=call, tool="t", status=status, reason=reason)


@pytest.fixture
def fake_daemon(tmp_path):
    daemon = FakeDaemon(tmp_path / "s")
    yield daemon
    daemon.close()


class FakeRun:
    """A run of the fake daemon that goes on until ``stop`` is set to why it does not, or somebody cancels it."""

    def __init__(self, daemon):
        self.stop = None
        self.refused = None
        daemon.on.update(
            {
                cm.OpenRun: lambda m: [cm.RunOpened(m.id, run_view(stop=None))],
                cm.StepRun: lambda m: self._on(m, cm.RunState(m.id, run_view())),
                cm.ReserveModel: lambda m: self._on(m, cm.ModelReserved(m.id, m.run, 7, 60_000)),
                cm.SettleModel: lambda m: self._on(m, cm.RunState(m.id, run_view())),
                cm.AddEvidence: lambda m: self._on(m, cm.EvidenceTaken(m.id, m.run, m.evidence == "new")),
                cm.FinishRun: self._finish,
                cm.CancelRun: self._cancel,
                cm.WaitRun: lambda m: [cm.RunSettled(m.id, self.stop)],
                cm.ShowRun: lambda m: [cm.RunState(m.id, run_view(self.stop))],
            }
        )

    def _on(self, message, answer):
        return [cm.RunSettled(message.id, self.stop)] if self.stop else [answer]

    def _finish(self, message):
        if self.refused:
            return [cm.FinishRefused(message.id, message.run, 1, self.refused)]
        self.stop = self.stop or stop_record(RunStatus.COMPLETED, RunReason.FINISH_ACCEPTED, answer=message.answer)
        return [cm.RunSettled(message.id, self.stop)]

    def _cancel(self, message):
        if self.stop is None or self.stop.outcome == "suspended":
            self.stop = stop_record(RunStatus.CANCELLED, RunReason.CLIENT)
        return [cm.RunSettled(message.id, self.stop)]


def stop_record(status=RunStatus.BUDGET_EXHAUSTED, reason=RunReason.STEP_BUDGET, **more):
    outcome = "done" if status is RunStatus.COMPLETED else "suspended" if status in SUSPENDED else "stopped"
    told = {"phase": "decide", "step": 25, "detail": "25 of 25 steps", "text": "no step is left", "advice": "none"}
    more = {**told, "resumable": False, "deadline": RunDeadline(480_000, 1_500, 478_500), "budgets": {}, **more}
    return StopRecord("r_1", outcome, status, reason, **more)


def run_view(stop=None):
    return RunView(
        run="r_1",
        uid=0,
        status=stop.status if stop else RunStatus.RUNNING,
        goal="mend it",
        profile="edit",
        detectors="default",
        tenant="default",
        session=None,
        parent=None,
        workspace=None,
        on_disconnect="cancel",
        opened_at_ms=1_700_000_000_000,
        step=3,
        phase="decide",
        calls=4,
        calls_in_flight=0,
        state_version=1,
        deadline=RunDeadline(480_000, 90_000, 390_000),
        budgets={"steps": DimensionView(25, 3, 0, 22), "tokens_in": DimensionView(None, 700, 8_000, None)},
        sources={"steps": "profile edit"},
        stop=stop,
    )


@pytest.fixture
def fake_run(fake_daemon):
    return FakeRun(fake_daemon)


@pytest.fixture
def full_door(tmp_path):
    """A listener whose place for waiting clients is taken. Calling it lets all in that have come and will come."""
    listener, waiting, let_in = socket.socket(socket.AF_UNIX), [], []
    listener.bind(str(tmp_path / "full"))
    listener.listen(0)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                let_in.append(listener.accept()[0])

    def open_door():
        threading.Thread(target=accept, daemon=True).start()

    with contextlib.suppress(BlockingIOError):
        while True:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            waiting[-1].connect(str(tmp_path / "full"))
    open_door.path = str(tmp_path / "full")
    yield open_door
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    for one in (listener, *waiting, *let_in):
        one.close()
