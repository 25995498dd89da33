"""`python -m tests.trust.rigged RIG serve …`: a daemon with something done to it, else as ``deadlined serve``.

``dies=POINT:N``    kills itself with SIGKILL when it arrives at a point of `deaths` for the N-th time after SIGUSR1
``weighed``         says on stderr, at SIGUSR2, how much memory it has in use; forgets old results twice a second, so
                    that none is in this figure; its /proc may be read by its own uid
"""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
from types import ModuleType

import apsw

from tests.trust import deaths

IN_USE = "in use: "


def main() -> int:
    name, _, more = sys.argv.pop(1).partition("=")
    RIGS[name](more)
    from deadlined.__main__ import main as command

    return command()


def _weighed(_: str) -> None:
    from supervisor import daemon

    _replace(daemon, "protect_self", lambda: None)
    _replace(daemon, "_EXPIRY_PERIOD_S", 0.5)
    signal.signal(signal.SIGUSR2, lambda *_: _say_memory())


def _replace(module: ModuleType, name: str, value: object) -> None:
    """Only what is there: a rig that changes nothing would prove nothing."""
    if not hasattr(module, name):
        raise SystemExit(f"{module.__name__} has no {name} any more: mend this rig")
    setattr(module, name, value)


def _say_memory() -> None:
    """First CPython's own account of its small objects, then what everybody else has from malloc, SQLite apart: its
    cache has a bound of its own."""
    gc.collect()
    sys._debugmallocstats()
    sys.stderr.write(f"{IN_USE}{_malloced() - apsw.memory_used()}\n")
    sys.stderr.flush()


class _Mallinfo2(ctypes.Structure):
    """mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def _malloced() -> int:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):  # glibc 2.33
        return 0
    libc.mallinfo2.restype = _Mallinfo2
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


RIGS = {"dies": deaths.rig, "weighed": _weighed}


if __name__ == "__main__":
    sys.exit(main())
