"""What the workers run while they are measured. Imported by a zygote, so it imports next to nothing.

Tools with ``report`` tell the bench's oracle at that socket who they are, before they misbehave. What they leave alive
ends by itself after `LIFETIME_S`, should a kill fail.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import NoReturn

from deadlined import Context, tool

LIFETIME_S = 60.0


@tool(name="bench_noop", read_only=True, approval="never")
def noop() -> bool:
    """Do nothing."""
    return True


@tool(name="bench_read", read_only=True, approval="never")
def read(number: int) -> int:
    """Say the same number: each call is another one, and so is its outcome."""
    return number


@tool(name="bench_write", approval="never")
def write(number: int) -> int:
    """The same, as a call that may change something."""
    return number


@tool(name="bench_clock", read_only=True, approval="never")
def clock() -> int:
    """The instant at which a worker is in tool code."""
    return time.monotonic_ns()


@tool(name="bench_sleep", read_only=True, approval="never")
def sleep(report: str, ctx: Context) -> None:
    """Sleep past the deadline."""
    _say(report, "worker", ctx.deadline_ns)
    _sleep_and_leave()


@tool(name="bench_hold", read_only=True, approval="never")
def hold(report: str) -> bool:
    """Occupy a worker until whoever listens at ``report`` closes the line."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(report)
        return line.recv(1) == b""


@tool(name="bench_c_loop", approval="never")
def c_loop(report: str, ctx: Context) -> int:
    """Compute in C with the interpreter's lock held: no signal handler of Python's ever runs."""
    _say(report, "worker", ctx.deadline_ns)
    return sum(range(int(LIFETIME_S) * 50_000_000))


@tool(name="bench_spin", approval="never")
def spin() -> int:
    """The same, and nobody is told that it has begun."""
    return sum(range(int(LIFETIME_S) * 50_000_000))


@tool(name="bench_deaf", approval="never")
def deaf(report: str, ctx: Context) -> None:
    """Ignore every signal that can be ignored, and sleep."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            continue  # the C library keeps two of them for itself
    _say(report, "worker", ctx.deadline_ns)
    _sleep_and_leave()


@tool(name="bench_family", approval="never")
def family(report: str, ctx: Context) -> None:
    """A child, a child in a session of its own, and a daemon whose parents are gone; all sleep."""
    _fork(lambda: _say_and_sleep(report, "child"))
    _fork(lambda: _leave_session(report))
    _daemonise(report)
    _say(report, "worker", ctx.deadline_ns)
    _sleep_and_leave()


@tool(name="bench_memory", approval="never")
def memory(report: str, mib: int, ctx: Context) -> None:
    """Touch every page of so many MiB, and sleep."""
    held = [bytearray(b"\1") * (1 << 20) for _ in range(mib)]
    _say(report, f"holds-{len(held)}", ctx.deadline_ns)
    _sleep_and_leave()


@tool(name="bench_escape", approval="never")
def escape(report: str, count: int, ctx: Context) -> None:
    """So many daemons, each in a session of its own and with nobody above it."""
    for _ in range(count):
        _daemonise(report)
    _say(report, "worker", ctx.deadline_ns)
    _sleep_and_leave()


@tool(name="bench_bomb", approval="never")
def bomb(report: str, go: str, ctx: Context) -> None:
    """Fork at full speed in every process; at the cap some end, and others take their place. Begins when the file
    ``go`` exists."""
    _say(report, "worker", ctx.deadline_ns)
    until = time.monotonic() + LIFETIME_S
    while not os.path.exists(go):
        time.sleep(0.001)
    first, refused = os.getpid(), 0
    while time.monotonic() < until:
        try:
            os.fork()
        except OSError:
            refused += 1
            _reap()
            if refused % 2 and os.getpid() != first:
                os._exit(0)


def _reap() -> None:
    """At the cap: make room by taking the dead, and go on."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _daemonise(report: str) -> None:
    first = _fork(lambda: _second_fork(report))
    os.waitpid(first, 0)


def _second_fork(report: str) -> None:
    os.setsid()
    _fork(lambda: _say_and_sleep(report, "daemon"))


def _leave_session(report: str) -> None:
    os.setsid()
    _say_and_sleep(report, "session")


def _say_and_sleep(report: str, name: str) -> None:
    _say(report, name)
    _sleep_and_leave()


def _fork(work: Callable[[], None]) -> int:
    """A child that does ``work`` and never comes back into the worker's code; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def _say(report: str, name: str, deadline_ns: int = 0) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(report)
        line.sendall(f"{name} {deadline_ns}".encode())


def _sleep_and_leave() -> NoReturn:
    time.sleep(LIFETIME_S)
    os._exit(3)
