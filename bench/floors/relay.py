"""The blocking floor of a call: client → this process → worker and back, in the product's own frames, without a loop,
a deadline, or a look at anything. ``python -m bench.floors.relay SOCKET WORKERS``; serves one client and ends with it.

With one worker it blocks on each side in turn (the least latency that a process in between can have); with more it
polls them all (the least work per call).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from collections import deque

from bench.floors import _namespaces
from protocol import _client_messages as cm
from protocol._codecs import daemon_to_client, daemon_to_worker, worker_to_daemon
from protocol._framing import FrameBuffer
from protocol._outcomes import CallResult, Delivery, Isolation, Status, Usage
from protocol._worker_messages import Accepted, Call, Ended

_READ = 1 << 16
_CLIENT, _WORKER = daemon_to_client(False), daemon_to_worker()
_TOOLS = {"bench_noop": lambda: True}


class Relay:
    """Passes calls on and answers back."""

    def __init__(self, client: socket.socket, workers: list[socket.socket]) -> None:
        self._client, self._workers = client, workers
        self._from_client = FrameBuffer()
        self._from_worker = {worker: FrameBuffer() for worker in workers}
        self._serving: dict[socket.socket, int] = {}
        self._idle = list(workers)
        self._waiting: deque[cm.Submit] = deque()
        self._nonce = 0

    def greet(self) -> None:
        """Answer the one Hello."""
        assert self._read_client()
        self._client.sendall(_CLIENT.pack(cm.Welcome(cm.VERSION, [], os.getpid(), "none", 1 << 20)))

    def serve_one_at_a_time(self) -> None:
        """One worker, one call in flight: block here, block there."""
        worker = self._workers[0]
        while self._read_client():
            self._dispatch()
            while not (answers := self._hear_worker(worker)):
                pass
            self._client.sendall(b"".join(answers))

    def serve_many(self) -> None:
        """Any number in flight: one send to the client for each round of the poll."""
        poll = select.poll()
        by_descriptor = {worker.fileno(): worker for worker in self._workers}
        for descriptor in (self._client.fileno(), *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        while True:
            answers: list[bytes] = []
            for descriptor, _ in poll.poll():
                if descriptor in by_descriptor:
                    answers += self._hear_worker(by_descriptor[descriptor])
                elif not self._read_client():
                    return
            self._dispatch()
            if answers:
                self._client.sendall(b"".join(answers))

    def _read_client(self) -> bool:
        data = self._client.recv(_READ)
        for body in self._from_client.feed(data):
            message = _CLIENT.unpack(body)
            if isinstance(message, cm.Submit):
                self._waiting.append(message)
        return bool(data)

    def _dispatch(self) -> None:
        while self._waiting and self._idle:
            submit, worker = self._waiting.popleft(), self._idle.pop()
            self._nonce += 1
            call = Call(self._nonce, submit.tool, submit.arguments, 0, "key")
            self._serving[worker] = submit.id
            worker.sendall(_WORKER.pack(call))

    def _hear_worker(self, worker: socket.socket) -> list[bytes]:
        answers = []
        for body in self._from_worker[worker].feed(worker.recv(_READ)):
            message = _WORKER.unpack(body)
            if isinstance(message, Ended):
                self._idle.append(worker)
                answers.append(_CLIENT.pack(cm.Settled(self._serving.pop(worker), _result(message))))
        return answers


def _result(ended: Ended) -> CallResult:
    """As full as the product's, so that it costs the client and the wire the same."""
    return CallResult(
        f"c_{ended.nonce:012x}",
        "bench_noop",
        Status.OK,
        content=ended.content,
        summary="bench_noop: ok after 0 ms",
        fingerprint="0" * 16,
        delivery=Delivery.SUCCEEDED,
        containment="pidns+cgroup",
        isolation=Isolation("contain", "contain"),
        usage=Usage(ended.cpu_ms, ended.max_rss_bytes),
        idempotency_key="k" * 16,
    )


def _work(line: socket.socket) -> None:
    codec, frames = worker_to_daemon(), FrameBuffer()
    while data := line.recv(_READ):
        for body in frames.feed(data):
            call = codec.unpack(body)
            line.sendall(codec.pack(Accepted(call.nonce)))
            content = _TOOLS[call.tool]()
            line.sendall(codec.pack(Ended(call.nonce, "ok", content, reusable=True)))


def _start_workers(count: int, closed_in_child: socket.socket) -> list[socket.socket]:
    ours: list[socket.socket] = []
    for _ in range(count):
        mine, theirs = socket.socketpair()
        if _namespaces.fork() == 0:
            for other in (*ours, mine, closed_in_child):
                other.close()
            _work(theirs)
            os._exit(0)
        theirs.close()
        ours.append(mine)
    return ours


def main(path: str, workers: int) -> None:
    """Listen, serve one client, end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        lines = _start_workers(workers, listener)
        listener.listen(1)
        print("ready", flush=True)
        client, _ = listener.accept()
    relay = Relay(client, lines)
    with contextlib.suppress(ConnectionError):
        relay.greet()
        relay.serve_one_at_a_time() if workers == 1 else relay.serve_many()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
