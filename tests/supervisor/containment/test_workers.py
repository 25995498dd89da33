"""A worker as the daemon sees it: what can be shown without a zygote."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from supervisor.clock import now_ns
from supervisor.containment import workers
from supervisor.containment.second_line import SecondLine
from supervisor.containment.workers import Worker


class Table:
    """Where every deadline is past."""

    def __init__(self) -> None:
        self.past_ns = now_ns()

    def deadline_ns(self, _slot: int) -> int:
        return self.past_ns

    def killed_ns(self, _slot: int) -> int:
        return 0


class Killer:
    armed = False


@pytest.fixture
def made() -> Iterator[list[Worker]]:
    """Two workers that are a program of this test each."""
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    found, table, nothing = [], Table(), None
    for number, child in enumerate(children):
        ours, theirs = socket.socketpair()
        theirs.close()
        pidfd, rest = os.pidfd_open(child.pid), (nothing, nothing, table, 4_096)
        arguments: tuple[Any, ...] = (number, number, "bare", ours, pidfd, *rest)
        found.append(Worker(*arguments))
    yield found
    for worker, child in zip(found, children, strict=True):
        worker._socket.close()
        os.close(worker.pidfd)
        child.kill()
        child.wait()


@pytest.mark.case("B023")
@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), OSError(22, "Invalid argument")])
async def test_a_kill_that_is_refused_is_remembered_and_the_next_worker_is_killed_all_the_same(
    made, monkeypatch, error
):
    real = workers.kill_by_pidfd
    first, second = made

    def refuse(pidfd: int) -> bool:
        if pidfd == first.pidfd:
            raise error
        return real(pidfd)

    monkeypatch.setattr(workers, "kill_by_pidfd", refuse)
    unconfirmed: list[Worker] = []
    killer: Any = Killer()
    line = SecondLine(lambda: made, killer, 50_000_000, unconfirmed.append)
    line.look_now()
    with trio.move_on_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.run)
            await trio.lowlevel.wait_readable(second.pidfd)
            while first not in unconfirmed:
                line.look_now()
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert second.gone()
    assert not first.gone()
    assert (first.kill_refused, second.kill_refused) == (error.strerror, None)
    assert first in unconfirmed, "who could not be killed is told of"


def test_a_worker_that_is_dead_already_refuses_nothing(made):
    worker = made[0]
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PIDFD, worker.pidfd, os.WEXITED)
    worker.kill()
    assert worker.kill_refused is None
