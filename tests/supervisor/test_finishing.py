"""The completion checks of a run: whatever becomes of the call that a check is, the run hears of it once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol._checks import FieldsCheck, FieldValue, FileCheck, PersonCheck
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
        self.over: Any = None

    def ends(self, status: Status, content: Any = None) -> None:
        self.over(CallResult(self.id, "shell", status, content=content))


class Bench:
    """A run with two checks. ``at_once``: how a check ends that is over when it has begun; ``refuses``: it never is."""

    def __init__(self, *checks: Any) -> None:
        self.world = World()
        self.submits: list[Any] = []
        self.asked: list[tuple[str, str]] = []
        self.at_once: Status | None = None
        self.refuses = False
        self.checks: list[Check] = []
        self.refused: list[str] = []
        start: Any = self.start
        confirm: Any = self.confirm
        self.world.runs.check = Finishing(self.world.runs, start, confirm).check
        self.run = self.world.open(checks=list(checks) or ["one", "two"], workspace="/w")
        self.finish()

    def finish(self) -> None:
        self.run.finishers.append((self, 1))
        self.world.runs.refusers[self, 1] = lambda feedback, _refusals: self.refused.append(feedback)

    def confirm(self, run: LiveRun, arguments: str, why: str) -> None:
        if self.refuses:
            raise Refusal(Reason.OVERLOADED, "not now")
        self.asked.append((arguments, why))
        waited = (RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, 0, why)
        self.world.runs.feed(run, machine.Waited(*waited))

    def start(self, _run: LiveRun, submit: Any) -> Check:
        self.submits.append(submit)
        if self.refuses:
            raise Refusal(Reason.OVERLOADED, "not now")
        number = len(self.checks) + 1
        result = None if self.at_once is None else CallResult(f"c_{number}", "shell", self.at_once)
        self.checks.append(Check(number, result))
        return self.checks[-1]

    def asks(self, **fields: FieldValue) -> None:
        self.world.runs.feed(self.run, machine.FinishAsked("done", 0, fields=fields))


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


@pytest.mark.behaviour("M041")
def test_a_file_is_looked_at_by_a_call_in_the_workspace_and_its_answer_decides() -> None:
    bench = Bench(FileCheck("README", matches="^Usage"))
    bench.asks()
    (submit,) = bench.submits
    assert (submit.tool, submit.cwd, submit.run) == ("search", "/w", bench.run.id)
    bench.checks[0].ends(Status.OK, {"matches": [], "truncated": False})
    assert "no line of it does" in bench.refused[0]
    assert bench.run.refused == bench.refused[0]
    bench.finish()
    bench.asks()
    bench.checks[1].ends(Status.OK, {"matches": [{"line": 1}], "truncated": False})
    assert bench.run.stop is not None
    assert bench.run.stop.status is RunStatus.COMPLETED


@pytest.mark.behaviour("M120")
def test_fields_need_evidence_that_the_run_has() -> None:
    bench = Bench(FieldsCheck(("order",)))
    bench.asks(order=FieldValue("4711", ("c_9",)))
    assert "order names 'c_9', which the run does not have" in bench.refused[0]
    assert bench.run.evidence is not None
    bench.run.evidence.add("c_9")
    bench.finish()
    bench.asks(order=FieldValue("4711", ("c_9",)))
    assert bench.run.stop is not None
    assert (bench.run.stop.status, bench.run.stop.fields["order"].value) == (RunStatus.COMPLETED, "4711")


@pytest.mark.behaviour("M120")
def test_a_person_is_asked_behind_the_checks_before_and_sees_the_answer() -> None:
    bench = Bench("one", PersonCheck("Is it right?"))
    bench.asks(order=FieldValue("4711"))
    assert bench.asked == []
    bench.checks[0].ends(Status.OK)
    ((arguments, why),) = bench.asked
    assert why == "Is it right?"
    assert json.loads(arguments) == {
        "answer": "done",
        "fields": {"order": {"value": "4711", "evidence": []}},
        "question": "Is it right?",
    }
    assert bench.run.stop is not None
    assert (bench.run.stop.outcome, bench.run.stop.answer) == ("suspended", "done")
    assert bench.run.finishers == [], "who asked has heard of the suspension, and hears nothing more"
    bench.world.runs.feed(bench.run, machine.Answered(0))
    assert bench.run.stop.status is RunStatus.COMPLETED


def test_a_person_who_cannot_be_asked_now_counts_for_nothing() -> None:
    bench = Bench(PersonCheck())
    bench.refuses = True
    for _ in range(5):
        bench.finish()
        bench.asks()
    assert "nobody can be asked to confirm the answer: not now" in bench.refused[-1]
    assert (bench.run.machine.state, bench.run.machine.refusals) == (State.RUNNING, 0)
