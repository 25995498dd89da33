"""One worker as the daemon sees it: its socket, its pidfd, its slot in the deadline table, its directories and groups.

`spawn_worker` makes one, `Worker.listen` reads it, `wait_gone` is the kernel's word that nothing of it is left. The
pidfd of a namespace's first process becomes readable only after every process in the namespace is dead and reaped:
that one event means that locks, ports, descriptors and memory are free. Where there is no namespace the pidfd is that
of the worker's guard, and the same is known when the guard has left a receipt, or the zygote says so of what it left.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from protocol import _codecs as codecs
from protocol._errors import RemoteProtocolError
from protocol._framing import FrameBuffer
from protocol._links import Speaker, WorkerLink
from protocol._worker_messages import Call, FromWorker, Reaped, WorkerReady
from supervisor.clock import now_ns
from supervisor.containment.descriptors import send_with
from supervisor.containment.guard import GuardEnds
from supervisor.containment.kill import kill_by_pidfd
from supervisor.core.respawn import Cause

if TYPE_CHECKING:
    from supervisor.containment.cgroups import WorkerGroup
    from supervisor.containment.scratch import Scratch
    from supervisor.containment.table import DeadlineTable

_READ = 65_536
_UNTOLD_S = 0.05
_CODEC = codecs.daemon_to_worker()


class Worker:
    """A live worker. ``call`` is whatever its owner has placed on it; ``None`` = idle."""

    def __init__(
        self,
        number: int,
        slot: int,
        flavour: str,
        sock: socket.socket,
        pidfd: int,
        group: WorkerGroup,
        scratch: Scratch,
        table: DeadlineTable,
        frame_limit: int,
        guard: GuardEnds | None = None,
    ) -> None:
        self.guard = guard
        self.kill_again_ns = 0
        """When a guard that was rung from here has to be killed itself; 0: nobody has to be."""
        self.number, self.slot, self.flavour = number, slot, flavour
        self.pidfd, self.pid = pidfd, _pid_of(pidfd)
        self.group, self.scratch = group, scratch
        self.born_ns = now_ns()
        self.call: Any = None
        self.calls_served = 0
        self.renew_output = False
        self.reaped: Reaped | None = None
        self.was_reaped = trio.Event()
        self.is_gone = trio.Event()
        self.gone_ns = 0
        self.ended_for: Cause | None = None
        self.ready: WorkerReady | None = None
        self.shot_ns = 0
        self.kill_refused: str | None = None
        """Why the kernel took no signal for it."""
        self._socket = sock
        self._table = table
        self._link = WorkerLink(Speaker.DAEMON)
        self._frames = FrameBuffer(frame_limit)
        self._unsent = bytearray()
        self._closed = False

    # ------------------------------------------------------------ deadlines

    @property
    def due_ns(self) -> int:
        """When this worker is to be killed; 0: not armed."""
        return self._table.deadline_ns(self.slot)

    @property
    def signalled_ns(self) -> int:
        """When SIGKILL left for it, by the killer or by the second line; 0: it did not."""
        return self._table.killed_ns(self.slot) or self.shot_ns

    @property
    def seen(self) -> int:
        """Processes that were seen in the worker when the killer killed it."""
        return self._table.seen(self.slot)

    def disarm(self) -> None:
        """Its call has answered. Read the clock after this (see `DeadlineTable`)."""
        self._table.disarm(self.slot)

    def kill(self) -> None:
        """The second line: SIGKILL from here. The killer's groups and pidfd do the same a little faster. A guard is
        rung the first time, and killed the second."""
        again = self.shot_ns != 0
        if not again:
            self.shot_ns = now_ns()
        if self.guard is None or again:
            self._kill_by_pidfd()
            self.kill_again_ns = 0
        else:
            self.guard.ring(self.pidfd)
            self.kill_again_ns = self.shot_ns + self.guard.patience_ns

    def _kill_by_pidfd(self) -> None:
        """That it may not be signalled is remembered and disturbs nothing else: the next one is to be killed too."""
        try:
            kill_by_pidfd(self.pidfd)
        except OSError as error:
            self.kill_refused = error.strerror or str(error)

    # ------------------------------------------------------------ frames

    @property
    def nonce(self) -> int:
        """The nonce of the call that is, or was last, on the link."""
        return self._link.nonce

    @property
    def stragglers(self) -> int:
        """Frames of earlier calls that were dropped."""
        return self._link.stragglers

    def send(self, message: Call, descriptors: Sequence[int]) -> bool:
        """Write a Call frame without blocking; False: some of it waits for `flush` (a worker that does not read)."""
        self._link.say(message)
        data = _CODEC.pack(message)
        try:
            sent = send_with(self._socket, data, descriptors)
        except BlockingIOError:
            sent = 0
            if descriptors:  # they travel on the first byte; an idle worker's socket is empty, so this one is broken
                raise RemoteProtocolError("a worker's socket is full before its call") from None
        except OSError as error:
            raise RemoteProtocolError(f"a worker's socket is gone: {error.strerror}") from error
        self._unsent += data[sent:]
        return not self._unsent

    async def flush(self) -> None:
        """Write what `send` could not. Ends by itself when the worker is gone; the deadline bounds it."""
        while self._unsent and not self._closed:
            try:
                await trio.lowlevel.wait_writable(self._socket)
                del self._unsent[: self._socket.send(self._unsent)]
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                return

    async def listen(self, heard: Callable[[Worker, FromWorker], None]) -> str:
        """Read until the socket ends, and say how. Raises RemoteProtocolError when the worker breaks the link."""
        more = True
        while more:
            await trio.lowlevel.wait_readable(self._socket)
            with contextlib.suppress(BlockingIOError):
                more = self._read(heard)
        return "inside a frame" if self._frames.inside_frame else "between two frames"

    def drain(self, heard: Callable[[Worker, FromWorker], None]) -> None:
        """Take what a dead worker still had in its socket: before its obituary is believed."""
        # A torn frame of a dead worker is no data and no news. A full stop at EAGAIN: the other end may live on in a
        # process that the tool had sent it to.
        with contextlib.suppress(RemoteProtocolError, BlockingIOError):
            while self._read(heard):
                pass

    def _read(self, heard: Callable[[Worker, FromWorker], None]) -> bool:
        """One recv; False at the end of the stream. Raises BlockingIOError when nothing is there."""
        try:
            data = self._socket.recv(_READ)
        except ConnectionError:
            return False
        for body in self._frames.feed(data):
            message = _CODEC.unpack(body)
            if self._link.hear(message):
                if self._unsent:  # and the next call would be queued behind what is left of this one
                    raise RemoteProtocolError("an answer to a call that was not read to its end")
                heard(self, message)
        return bool(data)

    # ------------------------------------------------------------ end

    async def wait_gone(self) -> None:
        """Wait until no process of the worker is left, then set `is_gone`. For one waiter: the pool."""
        await trio.lowlevel.wait_readable(self.pidfd)
        if self.guard is not None:
            await self._wait_receipt(self.guard)
        self.gone_ns = now_ns()
        self.is_gone.set()

    async def _wait_receipt(self, guard: GuardEnds) -> None:
        receipt = guard.receipt()
        if receipt is not None:
            self.reaped = receipt
            self.was_reaped.set()
            return
        await self.was_reaped.wait()  # somebody has killed the guard: the zygote ends what it left, and says when
        while not guard.orphans_come_home and self.ended_for is not Cause.KILL_UNCONFIRMED:
            await trio.sleep(_UNTOLD_S)  # or cannot know: then the call is answered as unconfirmed, and is over

    def gone(self) -> bool:
        """Whether no process of the worker is left, without waiting."""
        return _readable(self.pidfd)

    def close(self) -> None:
        """Close our ends; its directories and groups have owners of their own."""
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            trio.lowlevel.notify_closing(self.pidfd)
            os.close(self.pidfd)
            if self.guard is not None:
                self.guard.close()


def _readable(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _pid_of(pidfd: int) -> int:
    """The worker's number in *our* pid namespace (pidfd_open(2), /proc/self/fdinfo); for people and tables only."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("Pid:"):
                return int(line[4:])
    return -1
