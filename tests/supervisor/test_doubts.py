"""What an effect of unknown outcome means for its run: what it may do again, when it goes on, what it pays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol import Contract, Reason, Status
from protocol._runs import RunReason
from supervisor.clock import now_ns
from supervisor.core.budget import Ledger, Level, Node, Refused
from supervisor.core.intake import Judged, Refusal
from supervisor.core.run import Answered
from supervisor.doubts import Doubts
from supervisor.journal.effect_rows import EffectRow

EFFECT = EffectRow("c_1", "pay", "r_1", 7, "key", 5, "{}", None, "fp")


class FakeEffects:
    """One open effect, of what ``fp`` stands for in ``r_1``."""

    heard_of: Any = None

    def unresolved(self, run: str, call_fp: str) -> EffectRow | None:
        return EFFECT if (run, call_fp) == ("r_1", "fp") else None


class FakeRuns:
    """One run, and what was fed to it."""

    def __init__(self, waits_for: RunReason | None = None, limits: dict[str, int] | None = None) -> None:
        self.ledger = Ledger()
        node = Node(Level.RUN, "r_1")
        self.ledger.open(node, None, limits or {})
        machine = SimpleNamespace(waits_for=waits_for, deadline_ns=now_ns() + 10**12)
        self.run: Any = SimpleNamespace(id="r_1", node=node, machine=machine, approvals=set(), step=1)
        self.fed: list[Any] = []
        self.noted: list[Any] = []

    def going(self, name: str) -> Any:
        return self.run if name == "r_1" else None

    def feed(self, _run: Any, given: Any) -> None:
        self.fed.append(given)

    def note(self, _run: Any, kind: Any, call: str, **data: Any) -> None:
        self.noted.append((kind, call, data))


def make(**more: Any) -> tuple[Doubts, Any, Any]:
    runs: Any = FakeRuns(**more)
    effects: Any = FakeEffects()
    return Doubts(runs, effects), runs, effects


def judged(**contract: Any) -> Judged:
    return Judged("pay", Contract(**contract), "", "{}", 0, 0, 0)


@pytest.mark.behaviour("M117")
def test_the_same_is_not_done_again_while_nobody_knows() -> None:
    doubts, runs, _ = make()
    with pytest.raises(Refusal, match="begun as c_1") as refused:
        doubts.before(runs.run, judged(), "fp")
    assert (refused.value.reason, refused.value.status) == (Reason.RECONCILE_REQUIRED, Status.WAITING_FOR_APPROVAL)


@pytest.mark.parametrize("contract", [{"repeat_after_unknown": "allow"}, {"idempotent": True}])
def test_what_may_be_repeated_is_and_the_doubt_is_told(contract: dict[str, Any]) -> None:
    doubts, runs, _ = make()
    (notice,) = doubts.before(runs.run, judged(**contract), "fp")
    assert (notice.detector, notice.level) == ("repeat_after_unknown", "warn")
    assert "c_1" in notice.text


def test_what_only_reads_or_does_something_else_is_in_no_doubt() -> None:
    doubts, runs, _ = make()
    assert doubts.before(runs.run, judged(read_only=True), "fp") == []
    assert doubts.before(runs.run, judged(), "another") == []


@pytest.mark.parametrize(
    ("waits_for", "approvals", "goes_on"),
    [
        (RunReason.RECONCILE_REQUIRED, set(), True),
        (RunReason.RECONCILE_REQUIRED, {"a_1"}, False),
        (RunReason.APPROVAL_REQUIRED, set(), False),
        (None, set(), False),
    ],
)
def test_a_run_goes_on_when_that_is_known_which_it_waited_for(
    waits_for: RunReason | None, approvals: set[str], goes_on: bool
) -> None:
    _, runs, effects = make(waits_for=waits_for)
    runs.run.approvals = approvals
    effects.heard_of(EFFECT)
    assert [type(given) for given in runs.fed] == ([Answered] if goes_on else [])


def test_an_effect_of_no_run_or_of_one_that_is_over_moves_nothing() -> None:
    _, runs, effects = make(waits_for=RunReason.RECONCILE_REQUIRED)
    effects.heard_of(EFFECT._replace(run=None))
    effects.heard_of(EFFECT._replace(run="r_2"))
    assert runs.fed == []


def test_a_question_is_paid_as_a_call_of_its_tool_and_has_the_time_of_its_run() -> None:
    doubts, runs, _ = make(limits={"tool_calls": 1})
    leave = doubts.leave_to_ask("r_1", "c_1.reconcile", "look")
    assert (leave.refused, leave.until_ns) == (None, runs.run.machine.deadline_ns)
    ((_, call, data),) = runs.noted
    assert (call, data["charge"]) == ("c_1.reconcile", {"tool_calls": 1, "tool_calls[look]": 1})
    assert isinstance(runs.ledger.can(runs.run.node, {"tool_calls": 1}), Refused)
    assert "no call left" in str(doubts.leave_to_ask("r_1", "c_2.reconcile", "look").refused)


def test_without_time_nobody_is_asked_and_nothing_is_paid() -> None:
    doubts, runs, _ = make()
    runs.run.machine.deadline_ns = now_ns() - 1
    assert doubts.leave_to_ask("r_1", "c_1.reconcile", "look").refused == "its run has no time left"
    assert runs.noted == []


def test_of_a_call_whose_run_is_over_anybody_may_ask() -> None:
    doubts, runs, _ = make()
    assert doubts.leave_to_ask("r_2", "c_1.reconcile", "look") == (None, None)
    assert runs.noted == []
