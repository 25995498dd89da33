"""What bounds every hostile program: it runs only where a test says so, and the kernel ends it whatever it does.

Each is started by a test as if it were a tool. Standard library only, any Python ≥ 3.9 from anywhere. A line on stdout
says what came of the attack.
"""

import ctypes
import os
import signal
import sys

LIFE_S = 30
_CLOCK_MONOTONIC = 1
_RELATIVE = 0


class _Event(ctypes.Structure):
    """``struct sigevent``: deliver ``signo`` to the process; 64 bytes in all."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 48),
    ]


class _Times(ctypes.Structure):
    """``struct itimerspec``."""

    _fields_ = [("interval", ctypes.c_long * 2), ("first", ctypes.c_long * 2)]


def bound() -> None:
    """SIGKILL by the kernel after `LIFE_S`, also for who is stopped or blocks all else. A fork does not inherit it."""
    if os.environ.get("DEADLINED_HOSTILE") != "1":
        sys.exit("a hostile program for tests: set DEADLINED_HOSTILE=1")
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    event = _Event(signo=signal.SIGKILL)
    times = _Times(first=(ctypes.c_long * 2)(LIFE_S, 0))
    if libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) or libc.timer_settime(
        timer, _RELATIVE, ctypes.byref(times), None
    ):
        sys.exit(f"no timer, no hostility: {os.strerror(ctypes.get_errno())}")


def fork() -> int:
    """A fork whose child is bounded too."""
    pid = os.fork()
    if pid == 0:
        bound()
    return pid


def say(*words: object) -> None:
    """One line on stdout, now."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
