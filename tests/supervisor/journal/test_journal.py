"""When things are written, who is told, and what happens when the disk refuses."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
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
        self.go, self.begun = threading.Event(), threading.Event()
        self.go.set()
        self.commits = 0

    def commit(self, changes: Sequence[Change]) -> int:
        refusal = self.refuse.pop(0) if self.refuse else None
        self.begun.set()
        self.go.wait(PATIENCE_S)
        if refusal is not None:
            raise refusal
        self.commits += 1
        return super().commit(changes)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a commit may take as long as a hung disk: tests of impatience set their own."""
    monkeypatch.setattr(module, "_PATIENCE_S", 60.0)


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


@asynccontextmanager
async def one_group(disk: Disk, journal: Journal) -> AsyncIterator[None]:
    """What is appended in here goes into one commit: another one is under way meanwhile."""
    await hung(disk, journal)
    yield
    disk.go.set()


async def hung(disk: Disk, journal: Journal, then: Heard | None = None) -> None:
    """A commit of nothing is under way, and does not come back before `go`."""
    disk.go.clear()
    disk.begun.clear()
    journal.append((Change(),), then or Heard(), keep=False)
    await trio.to_thread.run_sync(disk.begun.wait, PATIENCE_S)


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
        await journal.wait_moved(2)
        assert kinds(disk) == ["call_sent", "call_claimed", "call_ended"]


async def test_a_full_disk_is_told_and_what_must_be_kept_is_written_when_there_is_room(path):
    async with running(path) as (disk, journal):
        intent, result = Heard(), Heard()
        async with one_group(disk, journal):
            disk.refuse = [NoRoomError("full")]
            journal.append((event("call_claimed"),), intent, keep=False)
            journal.append((event("call_ended"),), result)
        await result.told.wait()
        assert (intent.durable, result.durable, journal.trouble) == ([False], [False], "full")
        assert journal.refuses
        await journal.wait_moved(0)
        assert (kinds(disk), journal.trouble) == (["call_ended"], None)
        assert (intent.durable, result.durable) == ([False], [False])


@pytest.mark.parametrize("room", [True, False])
async def test_what_is_appended_together_is_written_and_told_as_one(path: str, room: bool) -> None:
    async with running(path) as (disk, journal):
        first, second = Heard(), Heard()
        disk.refuse = [] if room else [NoRoomError("full")]
        with journal.together():
            journal.append((event("call_claimed"),), first, keep=False)
            with journal.together():
                journal.append((event("call_ended"),))
            journal.append((event("run_settled"),), second)
            assert not disk.commits
        await second.told.wait()
        assert (first.durable, second.durable) == ([room], [room])
        await journal.wait_moved(2)
        assert kinds(disk) == ["call_claimed", "call_ended", "run_settled"], "all of it is to be kept if any is"


async def test_together_is_over_with_its_block_whatever_ends_it(path: str) -> None:
    async with running(path) as (disk, journal):
        broken = journal.together()
        broken.__enter__()
        journal.append((event("call_ended"),))
        assert not broken.__exit__(LookupError, LookupError(), None)
        heard = Heard()
        journal.append((event("call_sent"),), heard)
        await heard.told.wait()
        assert kinds(disk) == ["call_ended", "call_sent"]


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


async def test_what_was_dropped_is_counted_once_however_often_the_commit_that_tells_of_it_fails(path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_WAITING", 3)
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    async with running(path) as (disk, journal):
        async with one_group(disk, journal):
            disk.refuse = [NoRoomError("full")] * 3
            for _ in range(8):
                journal.note(EventKind.CALL_SENT)
        await journal.wait_moved(0)
        assert [(found.kind, found.data.get("count")) for found in disk.events(0, 1)] == [("events_lost", 5)]


async def test_a_result_behind_a_commit_that_hangs_does_not_wait_for_it_either(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    async with running(path) as (disk, journal):
        result, intent = Heard(), Heard()
        async with one_group(disk, journal):
            journal.append((event("call_ended"),), result)
            journal.append((event("call_claimed"),), intent, keep=False)
            await result.told.wait()
            assert (result.durable, intent.durable) == ([False], [])
        await intent.told.wait()
        assert (result.durable, intent.durable) == ([False], [True])
        assert kinds(disk) == ["call_ended", "call_claimed"]


async def test_patience_is_for_each_commit_anew(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.1)
    async with running(path) as (disk, journal):
        quick, slow = Heard(), Heard()
        journal.append((event("call_ended"),), quick)
        await quick.told.wait()
        await hung(disk, journal)
        journal.append((event("call_ended"),), slow)
        await slow.told.wait()
        assert (quick.durable, slow.durable) == ([True], [False])


async def test_who_waits_behind_a_commit_goes_with_the_next_at_once(path, monkeypatch):
    monkeypatch.setattr(module, "_LINGER_S", 2 * PATIENCE_S)
    monkeypatch.setattr(module, "_PATIENCE_S", 2 * PATIENCE_S)
    async with running(path) as (disk, journal):
        heard = Heard()
        async with one_group(disk, journal):
            journal.append((event("call_claimed"),), heard)
        await heard.told.wait()
        assert heard.durable == [True]


async def test_no_call_is_taken_when_a_disk_that_hung_turns_out_to_be_full(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    async with running(path) as (disk, journal):
        disk.refuse = [NoRoomError("full")]
        await hung(disk, journal)
        heard = Heard()
        journal.append((event("call_ended"),), heard)
        await heard.told.wait()
        assert not journal.refuses
        monkeypatch.setattr(module, "_RETRY_S", PATIENCE_S)
        monkeypatch.setattr(module, "_LINGER_S", PATIENCE_S)
        disk.go.set()
        while journal.trouble != "full":
            await trio.sleep(0.001)
        assert journal.refuses


async def test_who_waits_hears_once_also_when_the_end_comes_in_the_middle_of_a_commit(path):
    disk = Disk(path)
    disk.open()
    journal = Journal(disk)
    written, first, second = Heard(), Heard(), Heard()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run)
            await hung(disk, journal, written)
            journal.append((event("call_claimed"),), first, keep=False)
            nursery.cancel_scope.cancel()
        journal.append((event("call_ended"),), second)
        disk.go.set()
        await journal.close()
    assert [heard.durable for heard in (written, first, second)] == [[True]] * 3
    again = Store(path)
    again.open()
    assert [found.kind for found in again.events(0, 10)] == ["call_claimed", "call_ended"]
    again.close()


async def test_a_disk_that_hangs_does_not_keep_the_journal_from_closing(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    disk = Disk(path)
    disk.open()
    journal = Journal(disk)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run)
            await hung(disk, journal)
            nursery.cancel_scope.cancel()
        await journal.close()
    disk.go.set()
    await journal._thread.wait_turn()
    disk.close()


async def test_events_of_a_run_are_read_apart_and_a_run_that_is_over_is_not_kept_in_mind(path):
    async with running(path) as (disk, journal):
        for run in ("r_1", "r_2", "r_1"):
            journal.note(EventKind.CALL_SENT, run=run)
        journal.run_over("r_1")
        heard = Heard()
        journal.append((), heard)
        await heard.told.wait()
        found = await journal.events(0, 10, None, None, run="r_1")
        assert [(one.seq, one.data) for one in found] == [(1, {"run_seq": 1}), (3, {"run_seq": 2})]
        assert len(disk._runs) == 1


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
