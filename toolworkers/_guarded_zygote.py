"""The zygote where this host gives no namespace: its children are guards, and each guard's child is a worker.

Owns what differs from `_zygote`: the two links of a pair, what outlives a guard that was killed, and an end that leaves
nothing. It is a subreaper, so everything that a guard lets go of becomes its child.

Rules
1. Reaped is said of a guard when the zygote has no child left but guards: then nothing of that guard's worker is left
   either, whether the guard had the time to see to it or not.
2. What is killed is direct children that are no guard, never a guard that may still do it better; and all below them,
   because one that does not die (it waits in the kernel) would keep its own.
3. No parent-death signal on us or on a guard: it would end the one that kills before those that are to be killed. When
   the daemon is gone the guards are told by their links, and waited for; who does not go is killed, and what it leaves.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time

from protocol._worker_messages import Reaped
from toolworkers import _guard
from toolworkers import _world as world
from toolworkers._children import direct_children
from toolworkers._datagrams import send_datagram
from toolworkers._zygote import Unborn, Zygote

_GUARD_ENDS = 2
_PATIENCE_NS, _BUDGET_NS = 50_000_000, 2_000_000_000
"""At our end: how long guards may take before they are killed, and how long anybody may."""


class GuardedZygote(Zygote):
    """The serve loop over guards. Raises OSError where the kernel has no list of children."""

    _more_descriptors = _GUARD_ENDS

    def _prepare(self) -> None:
        direct_children()
        self._guards: dict[int, socket.socket] = {}
        self._strays: dict[int, int] = {}
        self._obituaries: list[Reaped] = []

    def _fork(self) -> Unborn:
        """Fork a guard, which forks the worker. Raises OSError when this host has no room for it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link, guards = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, guards:
            pid = os.fork()
            if pid == 0:
                _guard.stand(guards, theirs, self._settings)
        pidfd = os.pidfd_open(pid)
        self._guards[pid] = link
        self._poll.register(pidfd, select.POLLIN)
        return Unborn(pid, pidfd, ours)

    def _hand_over(self, child: Unborn, worker: int, datagram: bytes, descriptors: list[int]) -> None:
        """The guard first: it must be able to end the worker before the worker can do anything."""
        ends, rest = descriptors[-_GUARD_ENDS:], descriptors[:-_GUARD_ENDS]
        with contextlib.suppress(ConnectionError):
            send_datagram(self._guards[child.pid], _guard.ARMING.pack(worker), ends)
        super()._hand_over(child, worker, datagram, rest)

    def _reap(self, pidfd: int) -> None:
        if pidfd in self._strays:
            self._poll.unregister(pidfd)
            os.close(pidfd)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._strays.pop(pidfd), 0)
        else:
            pid = self._next.pid if self._next is not None and pidfd == self._next.pidfd else self._workers[pidfd][0]
            super()._reap(pidfd)
            self._guards.pop(pid).close()
        self._look_for_strays()

    def _buried(self, message: Reaped) -> None:
        """Rule 1: not before `_look_for_strays` has found nobody."""
        self._obituaries.append(message)

    def _look_for_strays(self) -> None:
        """Rule 2. Never waits: one that does not die must not keep others from their end, or from being served."""
        strays = world.kill_children(frozenset((*self._guards, *self._strays.values())))
        if strays:
            world.kill_kindred(strays, None)
        for pid in strays:
            pidfd = os.pidfd_open(pid)  # a direct child that was not reaped: the number is still its own
            self._strays[pidfd] = pid
            self._poll.register(pidfd, select.POLLIN)
        if not self._strays and not set(direct_children()) - set(self._guards):
            told, self._obituaries = self._obituaries, []
            for message in told:
                self.say(message)

    def end(self) -> None:
        """Rule 3."""
        self._poll.unregister(self._link)
        for link in self._guards.values():
            link.close()
        now = time.monotonic_ns()
        patient, until = now + _PATIENCE_NS, now + _BUDGET_NS
        while (self._guards or self._strays) and now < until:
            for descriptor, _ in self._poll.poll(max(1, ((patient if now < patient else until) - now) // 1_000_000)):
                with contextlib.suppress(OSError):  # the daemon, who would be told, is gone
                    self._reap(descriptor)
            now = time.monotonic_ns()
            if now >= patient and self._guards:
                world.kill_children()
