"""The hand-over between the loop and the thread that commits."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from supervisor.journal.commit_thread import CommitThread

PATIENCE_S = 20


class Work:
    """What is done in the thread. ``go`` lets it end; ``begun`` says that it is under way."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.go.set()
        self.done: list[str] = []
        self.fails: Exception | None = None

    def __call__(self) -> None:
        self.begun.set()
        self.go.wait(PATIENCE_S)
        if self.fails is not None:
            raise self.fails
        self.done.append("write")

    def read(self, what: str) -> str:
        self.done.append(what)
        return what


@asynccontextmanager
async def serving(work: Work) -> AsyncIterator[tuple[CommitThread, list[int]]]:
    """The thread, and how much was done each time when the loop heard of it."""
    thread, heard = CommitThread(work), []
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(thread.run, lambda: heard.append(len(work.done)))
            yield thread, heard
            work.go.set()
            nursery.cancel_scope.cancel()


async def until(heard: list[int], count: int) -> None:
    while len(heard) < count:
        await trio.sleep(0.001)


async def test_each_ring_is_one_write_and_the_loop_hears_of_it_afterwards():
    work = Work()
    async with serving(work) as (thread, heard):
        for number in range(1, 201):
            thread.ring()
            await until(heard, number)
    assert (heard, len(work.done)) == (list(range(1, 201)), 200)


async def test_whoever_asks_waits_until_the_write_is_over():
    work = Work()
    work.go.clear()
    async with serving(work) as (thread, _), trio.open_nursery() as nursery:
        thread.ring()
        await trio.to_thread.run_sync(work.begun.wait, PATIENCE_S)
        nursery.start_soon(thread.ask, work.read, "read")
        await trio.sleep(0.02)
        assert work.done == []
        work.go.set()
    assert work.done == ["write", "read"]


async def test_a_question_is_answered_also_before_the_thread_runs_and_after_it():
    work = Work()
    thread = CommitThread(work)
    assert (await thread.ask(work.read, "before"), thread.running) == ("before", False)
    async with serving(work) as (served, _):
        assert served.running
    assert (await served.ask(work.read, "after"), served.running) == ("after", False)


async def test_what_breaks_in_the_thread_comes_out_where_it_runs():
    work = Work()
    work.fails = ZeroDivisionError("a defect")
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with serving(work) as (thread, _):
            thread.ring()
            await trio.sleep(PATIENCE_S)


async def test_a_write_that_hangs_does_not_hold_up_the_end_and_is_the_last():
    work = Work()
    work.go.clear()
    thread = CommitThread(work)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(thread.run, lambda: None)
            thread.ring()
            await trio.to_thread.run_sync(work.begun.wait, PATIENCE_S)
            nursery.cancel_scope.cancel()
        assert work.done == []
        work.go.set()
        await thread.wait_turn()
    assert work.done == ["write"]


async def test_a_ring_that_was_not_heard_before_the_end_writes_nothing_behind_it():
    work = Work()
    thread = CommitThread(work)
    thread._turn.acquire()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(thread.run, lambda: None)
            thread.ring()
            nursery.cancel_scope.cancel()
        thread._turn.release()
        await thread.ask(work.read, "the rest")
    assert work.done == ["the rest"]


async def test_the_thread_ends_with_what_it_served():
    thread, ended = CommitThread(Work()), threading.Event()
    serve = thread._serve
    thread._serve = lambda: (serve(), ended.set())
    async with trio.open_nursery() as nursery:
        await nursery.start(thread.run, lambda: None)
        await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(ended.wait, PATIENCE_S)
