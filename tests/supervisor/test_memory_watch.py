"""Who ends a call for memory, and whom nobody looks at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from protocol import Contract, Reason, Status
from supervisor.memory_watch import MemoryWatch, out_of_memory


def call(kills: bool, contract: Contract | None = None) -> Any:
    worker = SimpleNamespace(group=SimpleNamespace(out_of_memory=lambda: kills))
    return SimpleNamespace(worker=worker, judged=SimpleNamespace(contract=contract or Contract(kind="command")))


@pytest.mark.parametrize(
    ("contract", "looked_at"),
    [
        (Contract(kind="command"), True),
        (Contract(kind="command", read_only=True), True),
        (Contract(kind="python"), True),
        (Contract(kind="python", read_only=True), False),
    ],
)
def test_all_are_looked_at_but_read_only_python_tools(contract, looked_at):
    assert out_of_memory(call(True, contract)) is looked_at
    assert not out_of_memory(call(False, contract))


def test_a_call_without_a_worker_has_used_nothing():
    waiting = call(True)
    waiting.worker = None
    assert not out_of_memory(waiting)


async def test_a_call_that_goes_on_without_its_killed_part_is_ended():
    whole, torn = call(False), call(True)
    ended: list[Any] = []
    watch = MemoryWatch({"a": whole, "b": torn}, lambda *said: ended.append(said[:3]))
    with trio.move_on_after(0.15):
        await watch.run()
    assert ended == [(torn, Status.KILLED, Reason.MEMORY_LIMIT)]
