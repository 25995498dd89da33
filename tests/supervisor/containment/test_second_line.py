"""The second line of the deadline, with workers that are made up and a clock that is not."""

from __future__ import annotations

from typing import Any

import trio

from supervisor.clock import now_ns
from supervisor.containment.kill import SECOND_LINE_NS
from supervisor.containment.second_line import SecondLine

CONFIRM_NS = 60_000_000


class MadeUp:
    """A worker that is killed, and dies of it or not."""

    kill_again_ns = 0

    def __init__(self, due_ns: int, dies: bool = True) -> None:
        self.due_ns, self.dies = due_ns, dies
        self.kills: list[int] = []

    def kill(self) -> None:
        self.kills.append(now_ns())
        if self.dies:
            self.due_ns = 0


class Killer:
    armed = True


class Stage:
    def __init__(self, *workers: MadeUp) -> None:
        self.workers = list(workers)
        self.killer = Killer()
        self.unconfirmed: list[Any] = []
        made: Any = self
        self.line = SecondLine(lambda: made.workers, made.killer, CONFIRM_NS, self.unconfirmed.append)

    async def play(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.line.run()


async def test_what_the_killer_missed_is_killed_behind_it_and_once():
    worker = MadeUp(now_ns() + 5_000_000)
    stage = Stage(worker)
    due = worker.due_ns
    stage.line.poke(due)
    await stage.play(0.2)
    (killed,) = worker.kills
    assert killed >= due + SECOND_LINE_NS
    assert stage.unconfirmed == []


async def test_without_a_killer_nobody_waits_for_it():
    worker = MadeUp(now_ns() + 300_000_000, dies=False)
    stage = Stage(worker)
    stage.line.poke(worker.due_ns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.play, 1.0)
        await trio.sleep(0.05)
        stage.killer.armed = False
        worker.due_ns = now_ns()
        stage.line.look_now()
        await trio.sleep(0.005)
        assert len(worker.kills) == 1
        nursery.cancel_scope.cancel()


async def test_who_is_not_armed_or_not_overdue_lives():
    workers = [MadeUp(0), MadeUp(now_ns() + 60_000_000_000)]
    stage = Stage(*workers)
    stage.line.look_now()
    await stage.play(0.05)
    assert [worker.kills for worker in workers] == [[], []]


async def test_a_death_that_does_not_come_is_reported_once():
    worker = MadeUp(now_ns(), dies=False)
    stage = Stage(worker)
    stage.line.poke(worker.due_ns)
    await stage.play(0.4)
    assert stage.unconfirmed == [worker]
    assert len(worker.kills) == 1


async def test_an_earlier_deadline_wakes_it_earlier():
    late, early = MadeUp(now_ns() + 60_000_000_000), MadeUp(0)
    stage = Stage(late, early)
    stage.line.poke(late.due_ns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.play, 1.0)
        await trio.sleep(0.02)
        early.due_ns = now_ns()
        stage.line.poke(early.due_ns)
        await trio.sleep(0.2)
        assert len(early.kills) == 1
        nursery.cancel_scope.cancel()


async def test_a_guard_that_does_not_go_when_rung_is_killed_when_it_should_have_gone():
    class Guarded(MadeUp):
        def kill(self) -> None:
            super().kill()
            self.kill_again_ns = 0 if len(self.kills) > 1 else now_ns() + 20_000_000

    worker = Guarded(now_ns(), dies=False)
    stage = Stage(worker)
    stage.line.poke(worker.due_ns)
    await stage.play(0.3)
    rung, killed = worker.kills
    assert killed - rung >= 20_000_000
    assert stage.unconfirmed == [worker]
