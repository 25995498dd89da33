"""Wants HOSTILE_TARGET_PID's registers, memory, descriptors and files: ptrace, /proc/PID/mem and root, pidfd_getfd."""

import ctypes
import os

from _bounded import bound, say

PTRACE_SEIZE, PIDFD_GETFD = 0x4206, 438
bound()
target, libc = int(os.environ["HOSTILE_TARGET_PID"]), ctypes.CDLL(None, use_errno=True)


def attempt(what, act):
    """``act`` raises OSError, or returns what the system call did."""
    try:
        failed = ctypes.get_errno() if act() < 0 else None
    except OSError as error:
        failed = error.errno
    say(what, "obtained" if failed is None else f"refused {failed}")


def memory():
    with open(f"/proc/{target}/maps") as maps:
        where = int(maps.readline().split("-")[0], 16)
    return len(os.pread(os.open(f"/proc/{target}/mem", os.O_RDONLY), 8, where))


# Seizing does not stop the target, and our end lets it go (ptrace(2)).
attempt("ptrace", lambda: libc.ptrace(PTRACE_SEIZE, target, 0, 0))
attempt("memory", memory)
attempt("descriptor", lambda: libc.syscall(PIDFD_GETFD, os.pidfd_open(target), 0, 0))
attempt("root", lambda: len(os.listdir(f"/proc/{target}/root/")))
