"""The shell around the wait between two attempts: what it asks, what it lets go of, what it tells."""

from __future__ import annotations

import time
from typing import Any

import pytest

from protocol import Contract, Delivery, Reason, Status
from protocol._contracts import Retry
from protocol._deadlines import NEVER_NS
from protocol._events import EventKind
from protocol._worker_messages import Ended
from supervisor import retries as shell
from supervisor.core import call as machine
from supervisor.core.call import Death, Settle
from supervisor.core.intake import Judged
from supervisor.core.quarantine import QuarantineSettings
from supervisor.live_call import LiveCall
from supervisor.retries import Retries
from supervisor.trouble import Trouble

MS = 1_000_000
NOW, DEADLINE = 5_000 * MS, 60_000 * MS
RETRY = Retry(on=("transient_tool", "worker_lost", "memory_limit"))
CONTRACT = Contract(idempotent=True, retry=RETRY)
PASSES = Ended(1, "raised", error_class="transient_tool", message="429\n  from there", reusable=True)


class MadeUp:
    """Settlement, endings, and whoever feeds machines: they write down what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fed: list[machine.Input] = []
        self.events: list[tuple[EventKind, dict[str, Any]]] = []
        self.woken: list[int] = []

    def attempt_over(self, *_: object) -> None:
        self.asked.append("attempt_over")

    def drop_outputs(self, *_: object) -> None:
        self.asked.append("drop_outputs")

    def note(self, kind: EventKind, *_: object, **data: Any) -> None:
        self.events.append((kind, data))

    def feed(self, call: LiveCall, given: machine.Input) -> None:
        self.fed.append(given)
        call.machine.on(given)

    def wake(self, at_ns: int) -> None:
        self.woken.append(at_ns)


class World:
    """One call whose attempt is over, and the shell that is told so."""

    def __init__(self, given: machine.Input | None = None, deadline_ns: int = DEADLINE, drawn: float = 0.5) -> None:
        self.seen: Any = MadeUp()
        self.trouble = Trouble(QuarantineSettings(), self.seen.note)
        self.retries = Retries(
            self.seen, self.seen, self.trouble, self.seen.note, self.seen.feed, self.seen.wake, lambda: drawn
        )
        judged = Judged("t", CONTRACT, "bare", "{}", deadline_ns, 60_000, 0, run="r")
        self.call = LiveCall("c_1", 0, "key", judged, 1)
        self.worker: Any = type("MadeUpWorker", (), {"call": self.call})()
        self.call.worker = self.worker
        self.attempt(given or machine.Answered(PASSES, 4))

    def attempt(self, given: machine.Input) -> None:
        self.call.machine.on(machine.Placed(2))
        self.call.machine.on(machine.Accepted(3))
        self.retry = self.call.machine.on(given)[0]
        assert isinstance(self.retry, machine.Retry)

    def consider(self) -> None:
        self.retries.consider(self.call, self.retry)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "now_ns", lambda: NOW)


def test_a_call_sleeps_as_long_as_the_machine_says_and_wakes_once():
    world = World()
    world.consider()
    until = NOW + 250 * MS
    assert (world.retries.next_timer_ns(), world.seen.woken) == (until, [until])
    world.retries.on_time(until - 1)
    assert world.seen.fed == []
    world.retries.on_time(until)
    assert world.seen.fed == [machine.RetryDue(until)]
    world.retries.on_time(until)
    assert len(world.seen.fed) == 1
    assert world.retries.next_timer_ns() == NEVER_NS


def test_the_second_wait_is_twice_the_first():
    world = World()
    world.consider()
    world.retries.on_time(NOW + 250 * MS)
    world.attempt(machine.Answered(PASSES, 9))
    world.consider()
    assert world.seen.woken == [NOW + 250 * MS, NOW + 500 * MS]
    assert [notice.attempt for notice in world.call.notices] == [1, 2]


@pytest.mark.case("B110")
@pytest.mark.parametrize("step_s", [-3_600, 3_600])
def test_a_step_of_the_wall_clock_makes_no_wait_longer_or_shorter(monkeypatch, step_s):
    wall_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + step_s * 10**9)
    monkeypatch.setattr(time, "time", lambda: wall_ns() / 10**9 + step_s)
    world = World()
    world.consider()
    assert world.seen.woken == [NOW + 250 * MS]
    world.retries.on_time(NOW + 250 * MS)
    assert world.seen.fed == [machine.RetryDue(NOW + 250 * MS)]


def test_the_event_says_which_attempt_comes_why_and_when_and_what_it_costs():
    world = World()
    world.retries.charge = lambda _: {"retries": 1}
    world.consider()
    data = {"tool": "t", "class": "transient_tool", "delay_ms": 250, "attempt": 2, "charge": {"retries": 1}}
    assert world.seen.events == [(EventKind.RETRY_SCHEDULED, data)]


@pytest.mark.behaviour("M166")
def test_a_notice_is_one_short_line_and_no_stack_trace():
    long = Ended(1, "raised", error_class="transient_tool", message="Traceback\n" + "x" * 100_000)
    world = World(machine.Answered(long, 4))
    world.consider()
    (notice,) = world.call.notices
    assert "\n" not in notice.text
    assert len(notice.text) < 300


def test_a_run_that_has_no_retry_left_settles_the_call_as_it_had_ended_and_nothing_is_told_of_a_wait():
    world = World()
    world.retries.charge = lambda _: None
    world.consider()
    assert world.seen.fed == [machine.RetryRefused(NOW)]
    assert world.call.machine.state is machine.State.SETTLED
    assert (world.seen.events, world.seen.asked, world.call.worker) == ([], [], world.worker)
    assert "no retry left" in world.call.notices[0].text


def test_a_run_is_not_charged_for_an_attempt_that_has_no_time():
    asked: list[LiveCall] = []
    world = World(deadline_ns=NOW + 250 * MS)
    world.retries.charge = lambda call: asked.append(call) or {}
    world.consider()
    assert (world.seen.fed, asked) == ([machine.RetryRefused(NOW)], [])


def test_a_worker_that_answered_is_let_go_of_when_it_is_released_and_one_that_died_at_once():
    world = World()
    world.consider()
    assert world.call.worker is world.worker  # its output is being seen to, its release follows
    world.retries.released(world.call)
    assert world.call.worker is None
    dead = World(machine.Died(4))
    dead.consider()
    assert (dead.call.worker, dead.worker.call) == (None, None)
    assert dead.seen.asked == ["attempt_over", "drop_outputs"]


def test_a_call_that_does_not_sleep_keeps_its_worker_until_it_has_settled():
    world = World()
    world.retries.released(world.call)
    assert world.call.worker is world.worker


def test_one_that_settled_asleep_is_not_woken():
    world = World()
    world.consider()
    world.retries.forget(world.call)
    assert world.retries.next_timer_ns() == NEVER_NS
    world.retries.on_time(NEVER_NS)
    assert world.seen.fed == []


def test_a_call_that_was_put_in_quarantine_while_it_slept_is_not_begun_again():
    world = World(machine.Died(4))
    world.consider()
    crash = Settle(Status.CRASHED, Reason.WORKER_LOST, Delivery.UNKNOWN, 1, "tool", None, Death(1, 1, 2, 1))
    for _ in range(2):
        world.trouble.settled(world.call.judged, crash)
    world.retries.on_time(NOW + 250 * MS)
    assert world.seen.fed == [machine.RetryRefused(NOW)]
    assert world.call.machine.state is machine.State.SETTLED
    assert "not tried again" in world.call.notices[-1].text
