"""The completion checks of a run: whatever becomes of the call that a check is, the run hears of it once."""

from __future__ import annotations

from typing import Any

import pytest

from protocol._client_messages import OpenRun
from protocol._outcomes import CallResult, Reason, Status
from protocol._runs import RunReason, RunStatus
from supervisor.core import run as machine
from supervisor.core.intake import Refusal
from supervisor.core.run import State
from supervisor.finishing import Finishing
from supervisor.live_run import LiveRun
from tests.supervisor.test_runs import UID, World


class Check:
    """A call that is a check."""

    def __init__(self, number: int, result: CallResult | None) -> None:
        self.id, self.result = f"c_{number}", result
        self.watchers: dict[Any, Any] = {}

    def ends(self, status: Status) -> None:
        for told in list(self.watchers.values()):
            told(CallResult(self.id, "shell", status))


class Bench:
    """A run with two checks. ``at_once``: how a check ends that is over when it has begun; ``refuses``: it never is."""

    def __init__(self) -> None:
        self.world = World()
        self.at_once: Status | None = None
        self.refuses = False
        self.checks: list[Check] = []
        self.refused: list[str] = []
        start: Any = self.start
        self.world.runs.check = Finishing(self.world.runs, start).check
        self.run = self.world.open(checks=["one", "two"])
        self.finish()

    def finish(self) -> None:
        self.run.finishers.append((self, 1))
        self.world.runs.refusers[self, 1] = lambda feedback, _refusals: self.refused.append(feedback)

    def start(self, _run: LiveRun, _submit: Any) -> Check:
        if self.refuses:
            raise Refusal(Reason.OVERLOADED, "not now")
        number = len(self.checks) + 1
        result = None if self.at_once is None else CallResult(f"c_{number}", "shell", self.at_once)
        self.checks.append(Check(number, result))
        return self.checks[-1]

    def asks(self) -> None:
        self.world.runs.feed(self.run, machine.FinishAsked("done", 0))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_checks_run_one_after_the_other_and_then_the_run_is_done(bench: Bench) -> None:
    bench.asks()
    bench.checks[0].ends(Status.OK)
    assert (len(bench.checks), bench.run.settled) == (2, False)
    bench.checks[1].ends(Status.OK)
    assert bench.run.stop is not None
    assert bench.run.stop.status is RunStatus.COMPLETED


def test_a_check_that_is_over_at_once_is_heard(bench: Bench) -> None:
    """The queue is full: such a call has its result before anybody can watch it."""
    bench.at_once = Status.NOT_EXECUTED
    bench.asks()
    assert (len(bench.refused), bench.run.machine.state, bench.run.machine.in_flight) == (1, State.RUNNING, 0)


def test_a_check_that_cannot_begin_is_heard(bench: Bench) -> None:
    bench.refuses = True
    bench.asks()
    assert "cannot run: not now" in bench.refused[0]
    assert bench.run.machine.in_flight == 0


@pytest.mark.parametrize("status", [Status.OK, Status.CANCELLED])
def test_a_run_that_was_ended_begins_no_further_check_however_the_one_ends(bench: Bench, status: Status) -> None:
    bench.asks()
    bench.world.cancel(bench.run)
    assert bench.world.ended == ["c_1"]
    bench.checks[0].ends(status)
    assert len(bench.checks) == 1
    assert (bench.run.in_flight, bench.run.machine.in_flight) == ({}, 0)
    assert bench.run.stop is not None
    assert (bench.run.stop.status, bench.run.stop.reason) == (RunStatus.CANCELLED, RunReason.CLIENT)


def test_a_check_that_is_no_command_line_opens_no_run(bench: Bench) -> None:
    with pytest.raises(Exception, match="not a command line"):
        bench.world.runs.open(OpenRun(1, checks=["'"]), UID, lambda _run: None, lambda: None)
