"""When things are written, who is told, and what happens when the disk refuses."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from protocol._events import EventKind
from supervisor.journal import journal as module
from supervisor.journal.journal import Journal
from supervisor.journal.store import BrokenStoreError, Change, NoRoomError, Store
from tests.supervisor.journal.conftest import event

PATIENCE_S = 20


class Disk(Store):
    """A real store whose next commits may be refused, or held up until `go` is set."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.refuse: list[Exception] = []
        self.go = threading.Event()
        self.go.set()
        self.commits = 0

    def commit(self, changes: Sequence[Change]) -> int:
        self.go.wait(PATIENCE_S)
        if self.refuse:
            raise self.refuse.pop(0)
        self.commits += 1
        return super().commit(changes)


@asynccontextmanager
async def running(path: str) -> AsyncIterator[tuple[Disk, Journal]]:
    disk = Disk(path)
    disk.open()
    journal = Journal(disk)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run)
            yield disk, journal
            disk.go.set()
            nursery.cancel_scope.cancel()
        await journal.close()


class Heard:
    """Who waits for the disk."""

    def __init__(self) -> None:
        self.durable: list[bool] = []
        self.told = trio.Event()

    def __call__(self, durable: bool) -> None:
        self.durable.append(durable)
        self.told.set()


def kinds(disk: Disk) -> list[str]:
    return [found.kind for found in disk.events(0, 100)]


async def test_who_waits_is_told_when_it_is_on_the_disk(path):
    async with running(path) as (disk, journal):
        heard = Heard()
        journal.append((event(),), heard)
        assert heard.durable == []
        await heard.told.wait()
        assert (heard.durable, kinds(disk)) == ([True], ["daemon_started"])


async def test_what_nobody_waits_for_goes_with_the_next_group(path):
    async with running(path) as (disk, journal):
        for _ in range(50):
            journal.note(EventKind.CALL_SENT, call="c_1")
        await journal.wait_moved(49)
        assert (len(kinds(disk)), disk.commits) == (50, 1)


async def test_a_group_keeps_the_order_of_the_appends(path):
    async with running(path) as (disk, journal):
        heard = Heard()
        journal.note(EventKind.CALL_SENT)
        journal.append((event("call_claimed"),), heard)
        journal.note(EventKind.CALL_ENDED)
        await heard.told.wait()
        assert kinds(disk) == ["call_sent", "call_claimed", "call_ended"]


async def test_a_full_disk_is_told_and_what_must_be_kept_is_written_when_there_is_room(path):
    async with running(path) as (disk, journal):
        disk.refuse = [NoRoomError("full")]
        intent, result = Heard(), Heard()
        journal.append((event("call_claimed"),), intent, keep=False)
        journal.append((event("call_ended"),), result)
        await result.told.wait()
        assert (intent.durable, result.durable, journal.trouble) == ([False], [False], "full")
        assert journal.refuses
        await journal.wait_moved(0)
        assert (kinds(disk), journal.trouble) == (["call_ended"], None)
        assert (intent.durable, result.durable) == ([False], [False])


async def test_after_a_failed_fsync_nothing_is_tried_again(path):
    async with running(path) as (disk, journal):
        disk.refuse = [BrokenStoreError("fsync")]
        for _ in range(2):
            heard = Heard()
            journal.append((event(),), heard)
            await heard.told.wait()
            assert heard.durable == [False]
        assert (disk.commits, journal.trouble) == (0, "fsync")


async def test_a_result_does_not_wait_for_a_disk_that_hangs_and_an_intent_does(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    async with running(path) as (disk, journal):
        disk.go.clear()
        intent, first, second, late = Heard(), Heard(), Heard(), Heard()
        journal.append((event("call_claimed"),), intent, keep=False)
        journal.append((event("call_ended"),), first)
        await first.told.wait()
        journal.append((event("call_ended"),), second)
        journal.append((event("call_claimed"),), late, keep=False)
        assert [heard.durable for heard in (intent, first, second, late)] == [[], [False], [False], []]
        assert (journal.trouble is not None, journal.refuses) == (True, False)
        disk.go.set()
        await late.told.wait()
        assert kinds(disk) == ["call_claimed", "call_ended", "call_ended", "call_claimed"]
        assert journal.trouble is None
        assert [heard.durable for heard in (intent, first, second, late)] == [[True], [False], [False], [True]]


async def test_what_was_dropped_while_the_disk_refused_is_counted(path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_WAITING", 3)
    async with running(path) as (disk, journal):
        disk.go.clear()
        for _ in range(8):
            journal.note(EventKind.CALL_SENT)
        disk.go.set()
        await journal.wait_moved(0)
        events = disk.events(0, 100)
        assert [found.kind for found in events] == ["events_lost"] + ["call_sent"] * 3
        assert events[0].data == {"count": 5}


async def test_the_end_writes_what_is_left(path):
    async with running(path) as (_, journal):
        journal.note(EventKind.DAEMON_STOPPED, survivors=0)
    again = Store(path)
    again.open()
    assert [found.kind for found in again.events(0, 10)] == ["daemon_stopped"]
    again.close()


async def test_names_that_no_text_can_hold_are_written_all_the_same(path):
    async with running(path) as (disk, journal):
        journal.note(EventKind.CALL_REFUSED, tool="\udcff", nested=[{"\udc80": "\ud800"}], long="x" * 10_000)
        await journal.wait_moved(0)
        (found,) = disk.events(0, 1)
        assert (found.data["tool"], found.data["nested"]) == ("?", [{"?": "?"}])
        assert len(found.data["long"]) < 3_000
