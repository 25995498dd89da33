"""Whether this host really contains: a throw-away tree is started in a real worker, killed, and looked for.

No file is read and believed. The tree holds what leaks most often: a child, a session of its own, a double-forked
daemon that ignores every signal it may.
"""

from __future__ import annotations

import contextlib
import os
import select

import psutil
import trio

from protocol._deadlines import NS_PER_MS
from protocol._worker_messages import Call
from supervisor.clock import now_ns
from supervisor.containment.pool import Pool
from supervisor.containment.workers import Worker

_TREE = """{"argv": ["/bin/sh", "-c", "sleep 600 & (trap '' TERM HUP INT; setsid sleep 600 &) ; sleep 600"]}"""
_EXPECTED = 4
_PLAIN_TREE = """{"argv": ["/bin/sh", "-c", "trap '' TERM HUP INT; sleep 600 & sleep 600"]}"""
_PLAIN_EXPECTED = 3
"""Level ``group`` does not promise to find a daemon, and a probe leaves none behind."""
_BUDGET_S = 10.0


class ProbeFailed(Exception):  # noqa: N818  # what happened, in the words of this house
    """A tree survived, or could not be started; the text says what was seen."""


async def prove(pool: Pool) -> int:
    """Kill a tree in a worker of ``pool``; how many processes died. Raises ProbeFailed. The worker is used up."""
    with trio.move_on_after(_BUDGET_S) as patience:
        worker = await _a_worker(pool)
        with _TreeOutput() as descriptors:
            pool.end_at(worker, now_ns() + int(_BUDGET_S * 1_000) * NS_PER_MS)
            tree, count = (_PLAIN_TREE, _PLAIN_EXPECTED) if pool.containment == "group" else (_TREE, _EXPECTED)
            worker.send(Call(1, "shell", tree, now_ns() + 2**40, "probe", 3, "/"), descriptors)
            pidfds = await _tree_of(worker, count + (worker.guard is not None))
        pool.end_at(worker, now_ns())
        await worker.is_gone.wait()
        alive = [pidfd for pidfd in pidfds if not _ended(pidfd)]
        for pidfd in pidfds:
            os.close(pidfd)
        if alive:
            raise ProbeFailed(f"{len(alive)} of {len(pidfds)} processes outlived the kill of their worker")
    if patience.cancelled_caught:
        raise ProbeFailed(f"the tree was not started and killed within {_BUDGET_S:g} s")
    return len(pidfds)


async def _a_worker(pool: Pool) -> Worker:
    while (worker := pool.take()) is None:
        pool.want(1)
        await trio.sleep(0.002)
    pool.want(0)
    return worker


async def _tree_of(worker: Worker, count: int) -> list[int]:
    """pidfds of the worker's processes once all are there. Seen from outside, through /proc; below a guard they are the
    worker and its own."""
    while True:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            family = psutil.Process(worker.pid).children(recursive=True)
            if len(family) >= count:
                return [os.pidfd_open(member.pid) for member in family]
        await trio.sleep(0.002)


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


class _TreeOutput:
    """The three descriptors that a command's call needs, leading nowhere."""

    def __enter__(self) -> list[int]:
        raw = os.memfd_create("probe", os.MFD_CLOEXEC)
        read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._descriptors = [raw, read_end, write_end]
        return self._descriptors

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
