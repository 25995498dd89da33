"""Processor time of the killed, from made-up workers."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import trio

from protocol._worker_messages import Reaped
from supervisor.processor_time import ProcessorTime

REAPED = Reaped(1, None, 9, 11, 4096)


def worker(pid: int = 0, group: Any = None, reaped: Reaped | None = REAPED) -> Any:
    return SimpleNamespace(number=1, pid=pid, reaped=reaped, group=group or SimpleNamespace(kill=None))


def test_a_group_knows_what_the_wait_status_leaves_out(tmp_path):
    (tmp_path / "cpu.stat").write_text("usage_usec 250999\nuser_usec 1\nsystem_usec 2\n")
    made = worker(group=SimpleNamespace(kill=3, directories=[str(tmp_path)]))
    assert ProcessorTime({}).completed(made) == Reaped(1, None, 9, 250, 4096)


def test_a_group_that_is_gone_leaves_the_wait_status(tmp_path):
    made = worker(group=SimpleNamespace(kill=3, directories=[str(tmp_path / "gone")]))
    assert ProcessorTime({}).completed(made) == REAPED


def test_nothing_is_made_up_where_no_wait_status_came():
    assert ProcessorTime({}).completed(worker(reaped=None)) is None


async def test_without_a_group_the_processes_are_looked_at_while_they_run():
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as spinning:
        try:
            made = worker(pid=os.getpid())  # and the one that spins below it
            calls: Any = {"c": SimpleNamespace(worker=made)}
            time = ProcessorTime(calls)
            with trio.move_on_after(0.5):
                await time.run()
            completed = time.completed(made)
        finally:
            spinning.kill()
    assert completed is not None
    assert completed.cpu_ms > REAPED.cpu_ms
