"""One execution of the payment, from its begin to its end: its lines in the ledger, and that it is at work.

Who is at work is the kernel's word: each execution holds a lock (flock(2)) on a file of its own, which is free when the
thread has returned, the process is dead, or the worker that ran it is gone. As a program, this file is what the kind
``child`` starts; so it imports little.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LASTS_S = 3.0
TICK_S = 0.2
PLACE = "PAYMENT_LEDGER"
"""Directory of the ledger, in the environment: no peer has to carry it."""
LEDGER = "ledger.jsonl"
_LOCK = ".lock"


def begin() -> str:
    """The tool was called; the name of this execution. From here on it counts."""
    who = os.urandom(4).hex()
    _write(who, "begun")
    return who


@contextmanager
def at_work(who: str) -> Iterator[Callable[[], None]]:
    """It is at work inside the block; what it yields writes a charge."""
    with open(os.path.join(os.environ[PLACE], who + _LOCK), "w", encoding="ascii") as lock:
        lock.write(f"{os.getpid()} {threading.get_ident()}")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lambda: _write(who, "charged")


def who_is_at_work(place: str | None = None) -> list[str]:
    """The executions at work now, each as what it is from here: a ``task``, a ``thread`` or a ``process``."""
    place, running = place or os.environ[PLACE], []
    for name in os.listdir(place):
        if name.endswith(_LOCK):
            with open(os.path.join(place, name), encoding="ascii") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    running.append(_kind_of(lock.read()))
    return sorted(running)


def pay_slowly(who: str) -> None:
    """Charge at every tick, and wait in system calls between them."""
    with at_work(who) as charge:
        for _ in range(round(LASTS_S / TICK_S)):
            charge()
            time.sleep(TICK_S)


def _kind_of(holder: str) -> str:
    pid, thread_id = map(int, holder.split())
    if pid != os.getpid():
        return "process"
    return "task" if thread_id == threading.main_thread().ident else "thread"


def _write(who: str, what: str) -> None:
    line = json.dumps({"at_ns": time.monotonic_ns(), "who": who, "what": what}) + "\n"
    with open(os.path.join(os.environ[PLACE], LEDGER), "a", encoding="ascii") as ledger:
        ledger.write(line)


if __name__ == "__main__":
    pay_slowly(sys.argv[1])
