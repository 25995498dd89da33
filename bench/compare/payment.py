"""The payment that hangs, in five kinds; those that can be are there as coroutines too.

An execution that has begun writes ``charged`` every 200 ms for three seconds: what a bank would see of a tool that
retries inside, or of one whose client library never gives up. It ends by itself, so that nothing outlives the
comparison. Standard library only: every peer runs this.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from bench.compare import execution
from bench.compare.execution import LASTS_S, TICK_S, at_work, begin

TIMEOUT_S = 1.0
PAID = "paid"


def thread() -> str:
    """A plain function that waits in system calls: it gives the interpreter's lock away, and hears nothing."""
    execution.pay_slowly(begin())
    return PAID


def locked() -> str:
    """One call into C that keeps the interpreter's lock, as an extension or a bad regular expression does."""
    with at_work(begin()) as charge:
        charge()
        ctypes.PyDLL(None).usleep(round(LASTS_S * 1e6))
        charge()
    return PAID


def child() -> str:
    """A program does the work; the tool waits for it."""
    subprocess.run(_program(begin()), check=True, stdout=subprocess.DEVNULL)
    return PAID


def deaf() -> str:
    """It takes every exception for a passing fault and goes on, and ignores SIGTERM where it may."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with at_work(begin()) as charge:
        for due in _until_over():
            try:
                if due:
                    charge()
                time.sleep(TICK_S / 4)
            except BaseException:  # noqa: BLE001  # what this kind is about
                continue
    return PAID


async def awaiting() -> str:
    """A coroutine that awaits all the time: it can be cancelled at each tick."""
    with at_work(begin()) as charge:
        for _ in range(round(LASTS_S / TICK_S)):
            charge()
            await asyncio.sleep(TICK_S)
    return PAID


async def awaiting_child() -> str:
    """As `child`, awaited."""
    program = await asyncio.create_subprocess_exec(*_program(begin()), stdout=subprocess.DEVNULL)
    await program.wait()
    return PAID


async def awaiting_deaf() -> str:
    """As `deaf`, awaited: a cancellation is one more passing fault."""
    with at_work(begin()) as charge:
        for due in _until_over():
            try:
                if due:
                    charge()
                await asyncio.sleep(TICK_S / 4)
            except BaseException:  # noqa: BLE001  # what this kind is about
                continue
    return PAID


def _until_over() -> Iterator[bool]:
    """Again and again until a payment's time is over; True where a charge is due."""
    began = time.monotonic()
    due = began
    while (now := time.monotonic()) < began + LASTS_S:
        yield now >= due
        due += TICK_S if now >= due else 0.0


def _program(who: str) -> list[str]:
    return [sys.executable, "-I", execution.__file__, who]
