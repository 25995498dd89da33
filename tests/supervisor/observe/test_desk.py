"""Metrics for whoever asks, with a log that grows while it is read."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.testing

from protocol import _client_messages as cm
from protocol._events import Event
from supervisor.journal.store import StoreError
from supervisor.observe import desk as desk_module
from supervisor.observe.alerts import AlertSettings
from supervisor.observe.desk import MetricsDesk
from supervisor.observe.metrics import Metrics


class Journal:
    """A log in memory. ``broken``: it cannot be read; ``slow``: something that happens while it is."""

    def __init__(self, *events: Event) -> None:
        self.log = list(events)
        self.broken = False
        self.moved = trio.Event()
        self.meanwhile: Any = lambda: None

    @property
    def seq(self) -> int:
        return len(self.log)

    def add(self, kind: str, run: str | None = None, **data: Any) -> None:
        self.log.append(Event(len(self.log) + 1, 0, kind, None, run, 0, data, ""))
        self.moved.set()
        self.moved = trio.Event()

    async def wait_moved(self, after: int) -> None:
        while self.seq <= after:
            await self.moved.wait()

    async def events(self, after: int, limit: int) -> list[Event]:
        await trio.lowlevel.checkpoint()
        if self.broken:
            raise StoreError("gone")
        found = self.log[after : after + limit]
        self.meanwhile()
        return found


class Asker:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def say(self, message: cm.FromDaemon) -> None:
        self.heard.append(message)

    async def answer(self) -> Any:
        with trio.fail_after(10):
            while not self.heard:
                await trio.sleep(0.001)
        return self.heard.pop(0)


def opened(answer: cm.Metrics) -> str:
    [line] = [line for line in answer.text.splitlines() if line.startswith("deadlined_runs_opened_total ")]
    return line.split()[1]


async def started(nursery: trio.Nursery, journal: Journal, settings: AlertSettings | None = None) -> MetricsDesk:
    log: Any = journal
    desk = MetricsDesk(log, Metrics(("shell",).__contains__, settings or AlertSettings()))
    await nursery.start(desk.run)
    return desk


async def test_who_asks_hears_of_all_that_was_committed_before(nursery: trio.Nursery) -> None:
    journal, asker = Journal(), Asker()
    journal.add("run_admitted", "r_1")
    desk = await started(nursery, journal)
    desk.ask(asker, cm.AskMetrics(1))
    answer = await asker.answer()
    assert (answer.id, opened(answer)) == (1, "1.0")
    for number in range(2, 1_300):
        journal.add("run_admitted", f"r_{number}")
    desk.ask(asker, cm.AskMetrics(2))
    assert opened(await asker.answer()) == "1299.0"


async def test_what_is_asked_while_the_log_is_read_waits_for_what_came_meanwhile(nursery: trio.Nursery) -> None:
    journal, asker = Journal(), Asker()
    journal.add("run_admitted", "r_1")

    def once() -> None:
        journal.meanwhile = lambda: None
        journal.add("run_admitted", "r_2")
        desk.ask(asker, cm.AskMetrics(7))

    desk = await started(nursery, journal)
    await trio.testing.wait_all_tasks_blocked()
    journal.meanwhile = once
    journal.add("step_begun", "r_1")
    desk.ask(asker, cm.AskMetrics(6))
    answers = [await asker.answer(), await asker.answer()]
    assert [one.id for one in answers] == [6, 7]
    assert opened(answers[1]) == "2.0"


async def test_an_asker_that_is_gone_is_not_answered(nursery: trio.Nursery) -> None:
    journal, gone, other = Journal(), Asker(), Asker()
    desk = await started(nursery, journal)
    desk.ask(gone, cm.AskMetrics(1))
    desk.ask(other, cm.AskMetrics(2))
    desk.left(gone)
    await other.answer()
    assert gone.heard == []


async def test_an_asker_that_goes_while_its_answer_is_written_is_not_answered(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, go_on = threading.Event(), threading.Event()

    def render(_snapshots: object) -> str:
        written.set()
        assert go_on.wait(10)
        return ""

    monkeypatch.setattr(desk_module, "render", render)
    gone, other = Asker(), Asker()
    desk = await started(nursery, Journal())
    desk.ask(gone, cm.AskMetrics(1))
    desk.ask(other, cm.AskMetrics(2))
    assert await trio.to_thread.run_sync(written.wait, 10)
    desk.left(gone)
    go_on.set()
    assert (await other.answer()).id == 2
    assert gone.heard == []


async def test_a_log_that_cannot_be_read_leaves_the_question_with_what_there_is(nursery: trio.Nursery) -> None:
    journal, asker = Journal(), Asker()
    journal.add("run_admitted", "r_1")
    journal.broken = True
    desk = await started(nursery, journal)
    desk.ask(asker, cm.AskMetrics(1))
    assert opened(await asker.answer()) == "0.0"


async def test_one_connection_cannot_ask_without_end(nursery: trio.Nursery) -> None:
    journal, asker = Journal(), Asker()
    desk = await started(nursery, journal)
    for number in range(desk_module._ASKS + 1):
        desk.ask(asker, cm.AskMetrics(number))
    refused = await asker.answer()
    assert (refused.id, refused.error.code) == (desk_module._ASKS, "overloaded")


async def test_an_alert_is_told_when_it_comes_and_not_again_by_the_next_daemon(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, object]] = []

    class Log:
        def warning(self, event: str, **data: object) -> None:
            told.append({"event": event, **data})

    monkeypatch.setattr(desk_module, "_LOG", Log())
    journal, asker = Journal(), Asker()
    desk = await started(nursery, journal, AlertSettings(calls_per_run=1))
    journal.add("run_admitted", "r_1")
    for _ in range(2):
        journal.add("call_validated", "r_1", tool="shell", charge={"tool_calls": 1})
    desk.ask(asker, cm.AskMetrics(1))
    await asker.answer()
    assert told == [{"event": "run_over_threshold", "run": "r_1", "kind": "calls", "used": 2, "threshold": 1}]
    again = await started(nursery, journal, AlertSettings(calls_per_run=1))
    again.ask(asker, cm.AskMetrics(2))
    assert 'deadlined_alerts_total{kind="calls"} 1.0' in (await asker.answer()).text
    assert len(told) == 1
