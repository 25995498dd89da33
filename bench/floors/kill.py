"""The blocking floor of a kill: fork a worker, sleep until the deadline, SIGKILL, wait for the pidfd, fork the next.

Reads a line ``KIND AFTER_MS`` and answers ``SIGNALLED GONE READY``: nanoseconds from the deadline to the signal and to
the death, and from the signal to a replacement's first byte. Ends with its standard input. Standard library only: a
supervisor could not be smaller.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

from bench.floors import _namespaces

_LIFETIME_S = 60.0
_MEMORY_MIB = 200


def _nothing() -> None:
    pass


def _deaf() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)


def _family() -> None:
    for in_between in (_nothing, os.setsid, _fork_again):
        if os.fork() == 0:
            in_between()
            time.sleep(_LIFETIME_S)
            os._exit(0)


def _hundred() -> None:
    for _ in range(99):
        if os.fork() == 0:
            time.sleep(_LIFETIME_S)
            os._exit(0)


def _fork_again() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)


def _memory() -> None:
    _held.extend(bytearray(b"\1") * (1 << 20) for _ in range(_MEMORY_MIB))


_held: list[bytearray] = []
_BEHAVIOURS: dict[str, Callable[[], None]] = {
    "sleep": _nothing,
    "c_loop": _nothing,
    "deaf": _deaf,
    "family": _family,
    "memory": _memory,
    "hundred": _hundred,
}


def _start(kind: str) -> tuple[int, int]:
    """A worker that has said it is ready, and misbehaves: (pid, pidfd)."""
    readable, writable = os.pipe()
    pid = _namespaces.fork()
    if pid == 0:
        _BEHAVIOURS[kind]()
        os.write(writable, b"\0")
        if kind == "c_loop":
            sum(range(int(_LIFETIME_S) * 50_000_000))
        time.sleep(_LIFETIME_S)
        os._exit(0)
    os.close(writable)
    os.read(readable, 1)
    os.close(readable)
    return pid, os.pidfd_open(pid)


def _end(pid: int, pidfd: int) -> None:
    """Wait for the kernel's word, and reap."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    os.close(pidfd)
    os.waitpid(pid, 0)


def _measure(kind: str, after_ms: float) -> tuple[int, int, int]:
    pid, pidfd = _start(kind)
    due = time.monotonic_ns() + int(after_ms * 1e6)
    time.sleep(max(0.0, due - time.monotonic_ns()) / 1e9)
    signalled = time.monotonic_ns()
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    gone = time.monotonic_ns()
    next_pid, next_pidfd = _start("sleep")
    ready = time.monotonic_ns()
    _end(pid, pidfd)
    signal.pidfd_send_signal(next_pidfd, signal.SIGKILL)
    _end(next_pid, next_pidfd)
    return signalled - due, gone - due, ready - signalled


def main() -> None:
    """Serve lines until there are none."""
    print("ready", flush=True)
    for line in sys.stdin:
        kind, after_ms = line.split()
        print(*_measure(kind, float(after_ms)), flush=True)


if __name__ == "__main__":
    main()
