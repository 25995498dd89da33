"""The daemon's link to its killer: start it, register workers with it, notice its death and start another.

While no killer is armed (`armed` is False) the second line kills at the deadline itself and the daemon dispatches
nothing. A killer lost while the daemon is stopped is a double fault and not promised.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio

from protocol._slots import GUARDED, PATIENTLY
from supervisor.clock import now_ns
from supervisor.containment.descriptors import send_with
from supervisor.containment.launch import Helper, launch
from supervisor.containment.table import DeadlineTable
from supervisor.core.relapses import Relapses

_MESSAGE = struct.Struct("<IQ")
_UNREGISTER = 0
_PAUSE_S = 0.05
_PATIENCE_S = 3.0


@dataclass(slots=True)
class _Registration:
    generation: int
    pidfd: int
    cgroup_kill: int | None
    bell: int | None
    patiently: bool
    acknowledged: trio.Event

    def flags(self) -> int:
        return (GUARDED if self.bell is not None else 0) | (PATIENTLY if self.patiently else 0)

    def descriptors(self) -> tuple[int, ...]:
        return tuple(one for one in (self.pidfd, self.bell, self.cgroup_kill) if one is not None)


class KillerLink:
    """One killer at a time. Who stands in ``on_change`` is called whenever `armed` has changed: a killer has
    acknowledged every live worker, or is gone."""

    def __init__(self, table: DeadlineTable) -> None:
        self._table = table
        self.on_change: list[Callable[[], None]] = []
        self._registered: dict[int, _Registration] = {}
        self._helper: Helper | None = None
        self._socket: socket.socket | None = None
        self._posted: deque[int] = deque()
        self._mail = trio.Event()
        self.armed = False
        self._relapses = Relapses()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a killer running until cancelled; the first one is launched before this reports started, and raises
        OSError if it cannot be. A later one is tried again and again; the second line stands in for it."""
        try:
            self._start()
            self._relapses.started(now_ns())
            task_status.started()
            while True:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._listen()
                    nursery.cancel_scope.cancel()
                await self._restart()
        finally:
            self._close()

    async def _restart(self) -> None:
        self._lost()
        while self._socket is None:
            await trio.sleep(self._relapses.died(now_ns()))
            try:
                self._start()
            except OSError:  # no process or no descriptor to be had at the moment
                self._lost()
        self._relapses.started(now_ns())

    async def register(
        self,
        slot: int,
        generation: int,
        pidfd: int,
        cgroup_kill: int | None,
        bell: int | None = None,
        patiently: bool = False,
    ) -> None:
        """Tell the killer whom a slot stands for; returns when it has acknowledged. The descriptors stay ours.
        ``bell``: of the guard that ``pidfd`` names, where there is one; ``patiently``: see `_slots.PATIENTLY`.

        Cancelling leaves the registration in place; `unregister` takes it back.
        """
        entry = _Registration(generation, pidfd, cgroup_kill, bell, patiently, trio.Event())
        self._registered[slot] = entry
        self._post(slot)
        with trio.move_on_after(_PATIENCE_S):
            await entry.acknowledged.wait()
        if not entry.acknowledged.is_set():
            await self._replace_if_silent(entry)
            await entry.acknowledged.wait()

    async def _replace_if_silent(self, entry: _Registration) -> None:
        """A killer that lives and does not answer (somebody has stopped it) would keep every new worker waiting."""
        await trio.sleep(_PAUSE_S)  # were we stopped ourselves, its answer lies in the socket
        if not entry.acknowledged.is_set() and self._helper is not None:
            self._helper.kill()  # `run` sees its end and starts another

    def unregister(self, slot: int) -> None:
        """The slot's worker is gone: the killer drops its descriptors."""
        entry = self._registered.pop(slot, None)
        if entry is not None:
            entry.acknowledged.set()
            self._post(slot)

    @property
    def pid(self) -> int | None:
        """The killer's process, for tests and `status`."""
        return self._helper.pid if self._helper else None

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        with theirs:
            self._helper = launch("killer", [theirs.fileno(), self._table.memory, self._table.bell])
        for slot, entry in self._registered.items():
            if entry.acknowledged.is_set():
                entry.acknowledged = trio.Event()
            self._post(slot)
        self._arm_if_acknowledged()

    async def _write(self) -> None:
        """Send what is registered *now* for each posted slot, so that no message names a descriptor that was closed."""
        assert self._socket is not None
        while True:
            await self._mail.wait()
            while self._posted:
                try:
                    self._send(self._socket, self._posted[0])
                except BlockingIOError:  # and then what is registered for the slot may be another
                    await trio.lowlevel.wait_writable(self._socket)
                    continue
                except OSError:  # `_listen` sees the end; a worker that could not be registered is given up in time
                    pass
                self._posted.popleft()
            self._mail = trio.Event()

    def _send(self, link: socket.socket, slot: int) -> None:
        entry = self._registered.get(slot)
        generation = entry.generation if entry else _UNREGISTER
        word = slot | (entry.flags() if entry else 0)
        send_with(link, _MESSAGE.pack(word, generation), entry.descriptors() if entry else ())

    async def _listen(self) -> None:
        assert self._socket is not None
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                message = self._socket.recv(64)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not message:
                return
            word, generation = _MESSAGE.unpack(message)
            self._acknowledge(word & ~(GUARDED | PATIENTLY), generation)

    def _acknowledge(self, slot: int, generation: int) -> None:
        entry = self._registered.get(slot)
        if entry is not None and entry.generation == generation:
            entry.acknowledged.set()
        if not self.armed:
            self._arm_if_acknowledged()

    def _arm_if_acknowledged(self) -> None:
        if all(entry.acknowledged.is_set() for entry in self._registered.values()):
            self._set_armed(True)

    def _lost(self) -> None:
        self._set_armed(False)
        self._close()

    def _set_armed(self, armed: bool) -> None:
        self.armed = armed
        for tell in self.on_change:
            tell()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._helper is not None:
            self._helper.end()
            self._helper = None

    def _post(self, slot: int) -> None:
        self._posted.append(slot)
        self._mail.set()
