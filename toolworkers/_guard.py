"""The guard: parent of one worker where this host gives no namespace, and the end of everything below it.

Owns the worker's process from its fork to its wait status, the kill of whatever descends from it, and the receipt.
Runs no tool code. Leaves becoming a worker to `_birth`, and what outlives a guard that was killed itself to the zygote,
which is the next subreaper above.

Rules
1. It is a subreaper (prctl(2)): what loses its parent below it becomes its child. A kill is SIGKILL to its own direct
   children, one waitpid that blocks, and so again until there is no child: each that dies hands its own children up
   first. A child that was not reaped keeps its number, so no stranger is ever hit.
2. It ends its worker when the bell rings (the killer, or the daemon's second line), when the receipt's reader is gone
   (the daemon), when its link to the zygote hangs up (the zygote), and when the worker has died by itself.
3. The receipt is written when it has no child left, and not before; then it exits with 0. Its pidfd *and* the receipt
   are the confirmation: a guard that was killed leaves none.
4. No parent-death signal: with one the guard would die before its children. The worker has one, on the guard.
5. SIGTERM means the worker, and is passed on.

At level ``group`` the guard is no subreaper, because the kernel refused: what has left the worker's tree goes to init.
It then looks for what is in the tree, and in the sessions and process groups of the tree (`_kindred`), and promises no
more: a daemon gets away.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
from typing import NoReturn

from protocol._codecs import zygote_to_daemon
from protocol._worker_messages import Reaped
from toolworkers import _birth
from toolworkers import _syscalls as sys_
from toolworkers import _world as world
from toolworkers._datagrams import receive_datagram
from toolworkers._worker import Settings

ARMING = struct.Struct("<Q")
"""What the zygote says when the worker gets its request: its number, with two descriptors, receipt and bell."""
_HEARD = (signal.SIGCHLD, signal.SIGTERM)
_codec = zygote_to_daemon()


def stand(link: socket.socket, worker_link: socket.socket, settings: Settings) -> NoReturn:
    """In the zygote's child: fork the worker that waits on ``worker_link``, and watch over it. Never returns."""
    try:
        _settle_in()
        guard = os.getpid()
        worker = os.fork()
        if worker == 0:
            _bear(worker_link, settings, guard)
        _keep_only(link.fileno())
        Guard(link, worker).watch()
    finally:
        os._exit(_birth.EXIT_FAILED)


def _settle_in() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    os.setsid()
    with contextlib.suppress(OSError):  # level `group`: the zygote has found out, and said so
        sys_.become_subreaper()


def _bear(link: socket.socket, settings: Settings, guard: int) -> NoReturn:
    """The worker is a subreaper too: what a call leaves behind is its own to sweep."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    sys_.set_dumpable(True)  # or its files in /proc would be root's, and it could not offer itself to the OOM killer
    with contextlib.suppress(OSError):
        sys_.become_subreaper()
    _birth.conceive(link, settings, guard)


def _keep_only(link: int) -> None:
    """An inherited copy of another guard's link would hide its end."""
    os.closerange(3, link)
    os.closerange(link + 1, 2**31 - 1)


class Guard:
    """The watch over ``worker``. ``link``: the zygote's socket."""

    def __init__(self, link: socket.socket, worker: int) -> None:
        self._link, self._worker = link, worker
        self._number = 0
        self._receipt = -1
        self._status: int | None = None
        self._cpu_s, self._rss_kib = 0.0, 0
        self._heard = sys_.open_signals(_HEARD)
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._poll.register(self._heard, select.POLLIN)

    def watch(self) -> NoReturn:
        """Until one of the reasons of rule 2; then the end of all."""
        while self._status is None:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._heard:
                    self._hear_signals()
                elif descriptor != self._link.fileno() or not self._take():
                    self._end()
        self._end()

    def _take(self) -> bool:
        """The worker gets its request; False when the zygote is gone."""
        try:
            datagram, descriptors = receive_datagram(self._link)
        except ConnectionError:
            return False
        if not datagram:
            return False
        (self._number,) = ARMING.unpack(datagram)
        self._receipt, bell = descriptors
        self._poll.register(bell, select.POLLIN)
        self._poll.register(self._receipt, 0)  # nothing but POLLERR: its reader, the daemon, is gone (poll(2), pipe(7))
        return True

    def _hear_signals(self) -> None:
        pending = os.read(self._heard, 4096)
        for at in range(0, len(pending), _SIGNAL_BYTES):
            if pending[at] == signal.SIGTERM and self._status is None:
                os.kill(self._worker, signal.SIGTERM)
        self._reap(os.WNOHANG)

    def _reap(self, flags: int) -> bool:
        """Reap one that is dead (blocking without WNOHANG), then all others that are; False when there is no child."""
        while True:
            try:
                pid, status, used = os.wait4(-1, flags)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._worker:
                self._status = status
            self._cpu_s += used.ru_utime + used.ru_stime
            self._rss_kib = max(self._rss_kib, used.ru_maxrss)
            flags = os.WNOHANG

    def _end(self) -> NoReturn:
        """Rule 1, then rule 3."""
        if not sys_.is_subreaper():
            world.end_kindred({self._worker}, set())
        world.kill_children()
        while self._reap(0):
            world.kill_children()
        if self._receipt >= 0:
            with contextlib.suppress(OSError):  # the daemon is gone: nobody asks
                os.write(self._receipt, _codec.pack(self._obituary()))
        os._exit(0)

    def _obituary(self) -> Reaped:
        code = os.waitstatus_to_exitcode(self._status or 0)
        exit_code, signal_number = (code, None) if code >= 0 else (None, -code)
        return Reaped(self._number, exit_code, signal_number, int(self._cpu_s * 1e3), self._rss_kib * 1024)


_SIGNAL_BYTES = 128
"""Of a struct signalfd_siginfo, whose first word is the signal's number (signalfd(2)); little-endian, and below 256."""
