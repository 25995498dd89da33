"""The daemon's link to a zygote: ask it for workers, hear their pidfds and wait statuses, start another when it dies.

A zygote that dies takes its workers with it (their namespaces are nested in its own, or their guards see it go), so
there is nothing to clean up here but the link; the workers' own pidfds tell the rest.

How a zygote holds its workers is found out by trying: one that this host gives no namespace is started again with
guards (`core/levels.py` says what that means for a kill).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from typing import IO, Any

import trio

from protocol import _codecs as codecs
from protocol._errors import RemoteProtocolError
from protocol._worker_messages import FromZygote, Reaped, Spawn, Spawned, SpawnFailed, ZygoteReady
from supervisor.clock import now_ns
from supervisor.containment.descriptors import receive_with, send_all_with
from supervisor.containment.launch import Helper, launch
from supervisor.core.levels import HeldBy
from supervisor.core.relapses import Relapses

_START_BUDGET_S = 30.0
_PAUSE_S = 0.05
_GUARDS_PATIENCE_S = 1.0
"""How long a zygote with guards may take to end what it has, before it is killed; it needs some milliseconds."""
_DATAGRAM = 65_536
_EXIT_CONFIGURATION = 78
"""What `toolworkers._zygote` exits with when a tool cannot be loaded (EX_CONFIG of sysexits.h)."""


class SpawnError(Exception):
    """No worker came of a request; ``code`` is a word, the text a reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ZygoteLink:
    """One flavour of zygote. Who stands in ``on_reaped`` hears each wait status it reports, who stands in ``on_lost``
    that it died, and every worker of it with it. ``held_by``: what shall hold its workers, and from the start on, what
    does; ``refused``: why that is less than what was asked for."""

    def __init__(self, options: dict[str, Any], held_by: HeldBy = "namespaces", may_fall_back: bool = True) -> None:
        self._options, self.held_by, self._may_fall_back = options, held_by, may_fall_back
        self.refused: str | None = None
        self.on_reaped: list[Callable[[Reaped], None]] = []
        self.on_lost: list[Callable[[], None]] = []
        self._codec = codecs.daemon_to_zygote()
        self._helper: Helper | None = None
        self._socket: socket.socket | None = None
        self._asked: dict[int, trio.Event] = {}
        self._answered: dict[int, tuple[Spawned, int] | SpawnFailed] = {}
        self.ready: ZygoteReady | None = None
        self.losses = 0
        self._relapses = Relapses(_PAUSE_S)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a zygote running until cancelled; raises SpawnError when the first one cannot live on this host. A later
        one is tried again and again: a zygote that dies while it starts is no reason for the daemon to end."""
        try:
            await self._start()
            self._relapses.started(now_ns())
            task_status.started()
            while True:
                await self._listen()
                self._close("zygote_lost", "the zygote died; another is being started")
                for tell in self.on_lost:
                    tell()
                await self._restart()
        finally:
            self._close("shutdown", "the daemon is stopping")

    async def _restart(self) -> None:
        while self._socket is None:
            self.losses += 1
            await trio.sleep(self._relapses.died(now_ns()))
            with contextlib.suppress(SpawnError):
                await self._start()
        self._relapses.started(now_ns())

    async def spawn(self, request: Spawn, descriptors: Sequence[int]) -> tuple[int, int]:
        """Ask for a worker; returns (its pid in the zygote's namespace, its pidfd, now ours). Raises SpawnError."""
        if self._socket is None:
            raise SpawnError("zygote_lost", "there is no zygote at the moment")
        self._asked[request.worker] = answered = trio.Event()
        answer = None
        try:
            await send_all_with(self._socket, self._codec.pack(request), descriptors)
            await answered.wait()
            answer = self._answered.pop(request.worker, None)
        except (OSError, trio.ClosedResourceError) as error:
            raise SpawnError("zygote_lost", "the zygote does not listen") from error
        finally:
            self._asked.pop(request.worker, None)
            self._discard(request.worker)  # an answer that came to somebody who is interrupted
        if isinstance(answer, tuple):
            return answer[0].pid, answer[1]
        raise SpawnError(answer.code, answer.message) if answer else SpawnError("zygote_lost", "the zygote died")

    @property
    def pid(self) -> int | None:
        """The launcher's process, whose descendants are all workers of this flavour."""
        return self._helper.pid if self._helper else None

    async def hold_with_guards(self, why: str) -> None:
        """Namespaces are there and do not contain: the zygote is started again, with guards."""
        self.held_by, self.refused = "guards", why
        if self._helper is not None:
            self._helper.kill()  # `run` sees its end, and starts it as it shall be now
        losses = self.losses
        while self.losses == losses or self._socket is None:
            await trio.sleep(_PAUSE_S)

    async def _start(self) -> None:
        try:
            await self._start_as_held()
        except SpawnError as error:
            # Later is too late: what has been said of this host is in results already.
            first = self.ready is None and self._may_fall_back
            if error.code != "containment" or self.held_by == "guards" or not first:
                raise
            self.held_by, self.refused = "guards", str(error)
            await self._start_as_held()

    async def _start_as_held(self) -> None:
        try:
            self._launch()
        except OSError as error:  # no descriptor, no process, no memory to be had
            self._close("start_failure", "the zygote did not start")
            raise SpawnError("start_failure", f"the zygote could not be started: {error.strerror}") from error
        message = await self._first_word()
        if isinstance(message, ZygoteReady):
            self.ready = message
            return
        if isinstance(message, SpawnFailed):
            self._close(message.code, message.message)
            raise SpawnError(message.code, message.message)
        code = self._helper.reap() if message is None and self._helper is not None else None
        self._close("start_failure", "the zygote did not start")
        if code == _EXIT_CONFIGURATION:
            raise SpawnError("configuration", "the configured tools cannot be loaded; the reason stands above")
        raise SpawnError("start_failure", "the zygote did not start; its reason stands above")

    def _launch(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        told = {**self._options, "held_by": self.held_by}
        # Not on the command line, which is everybody's to read in /proc; and each value of the environment so that a
        # zygote need not read it: what it has read once may be found in the memory of its workers.
        told["lent"], values = _laid_out(told.pop("user_env", {}))
        with theirs, _memory_file(json.dumps(told).encode()) as options, _memory_file(values) as environment:
            self._helper = launch("zygote", [theirs.fileno(), options.fileno(), environment.fileno()])

    async def _first_word(self) -> FromZygote | str | None:
        """ZygoteReady, anything else that it is not, or None: it has ended."""
        assert self._socket is not None
        with trio.move_on_after(_START_BUDGET_S):
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._receive()
            except RemoteProtocolError as error:
                return str(error)
            except OSError:  # reset: it ended before it had read what it was asked already
                return None
        return "nothing"

    async def _listen(self) -> None:
        assert self._socket is not None
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                message = self._receive()
            except BlockingIOError:
                continue
            except (RemoteProtocolError, ConnectionError):
                return
            if message is None:
                return

    def _receive(self) -> FromZygote | None:
        assert self._socket is not None
        data, descriptors = receive_with(self._socket, _DATAGRAM, 2)
        if not data:
            return None
        message = self._codec.unpack(data)
        match message:
            case Spawned() | SpawnFailed():
                self._answer(message, descriptors)
            case Reaped():
                for tell in self.on_reaped:
                    tell(message)
        return message

    def _answer(self, message: Spawned | SpawnFailed, descriptors: list[int]) -> None:
        asked = self._asked.get(message.worker)
        if asked is None:  # the asking task was cancelled: closing the socket it holds ends the worker
            for descriptor in descriptors:
                os.close(descriptor)
            return
        if isinstance(message, Spawned) and not descriptors:  # no descriptor was free here (recvmsg(2), MSG_CTRUNC)
            message = SpawnFailed(message.worker, "descriptors", "no descriptor is free for a worker's pidfd")
        self._answered[message.worker] = (message, descriptors[0]) if isinstance(message, Spawned) else message
        asked.set()

    def _discard(self, worker: int) -> None:
        """Forget an answer that nobody takes, and close the pidfd in it."""
        answer = self._answered.pop(worker, None)
        if isinstance(answer, tuple):
            os.close(answer[1])

    def _close(self, code: str, message: str) -> None:
        for worker, asked in self._asked.items():
            self._discard(worker)  # it came, nobody has taken it yet, and its worker dies with the zygote
            self._answered[worker] = SpawnFailed(worker, code, message)
            asked.set()
        if self._socket is not None:
            trio.lowlevel.notify_closing(self._socket)  # who waits to write to it learns that it is gone
            self._socket.close()
            self._socket = None
        if self._helper is not None:
            if self.held_by == "guards":
                self._helper.wait_ended(_GUARDS_PATIENCE_S)
            self._helper.end()
            self._helper = None


def _laid_out(environment: dict[str, str]) -> tuple[dict[str, tuple[int, int]], bytes]:
    """Where each value lies (offset, length), and all of them one behind the other."""
    places, values = {}, bytearray()
    for name, value in environment.items():
        data = value.encode()
        places[name] = (len(values), len(data))
        values += data
    return places, bytes(values)


def _memory_file(content: bytes) -> IO[bytes]:
    file = open(os.memfd_create("options", os.MFD_CLOEXEC), "w+b", buffering=0)  # noqa: SIM115  # the caller's to close
    file.write(content)
    return file
