"""The trust suites of runs can fail: what they call wrong is wrong, and what their seeds give can be played."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined._errors import ConnectionLost, DaemonSilent, RequestRefused
from protocol._events import Event, EventKind
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Status
from protocol._runs import RunDeadline, RunReason, RunStatus, StopRecord
from supervisor.journal import run_rows
from supervisor.journal.rows import draft
from supervisor.journal.store import Change, Store
from supervisor.models.scripted import Script
from tests.trust import faults_of_a_loop
from tests.trust.faulty_scripts import FAULTS, scenario
from tests.trust.ledger import until_it_is_gone
from tests.trust.steering import Books, Question, Steered
from tests.trust.whole_log import contradictions

ADMITTED = {"tenant": "t", "session": "s"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(str(tmp_path / "journal.db"))
    made.open()
    yield made
    made.close()


def said(kind: EventKind, run: str | None = "r", call: str | None = None, **data: Any) -> Change:
    return Change(event=draft(kind, 0, call, 7, run, data))


def stands(node: str, **used: int) -> Change:
    return run_rows.used(run_rows.AccountRow(node, used, 0), 0)


def run_of(*changes: Change) -> list[Change]:
    """With two steps, which its session, its user and its tenant have used, unless it is said otherwise."""
    above = [stands(node, steps=2) for node in ("session 7/s", "user t/7", "tenant t")]
    begun = [said(EventKind.RUN_ADMITTED, **ADMITTED), said(EventKind.STEP_BEGUN, charge={"steps": 2})]
    return [*begun, *above, *changes]


def test_a_log_that_adds_up_is_whole(store: Store) -> None:
    store.commit(run_of(stands("session 7/s", steps=2, wall_ms=9), said(EventKind.RUN_SETTLED)))
    assert list(contradictions(store, {"session": {"steps": 2}})) == []


@pytest.mark.parametrize("used", [{"steps": 3}, {"steps": 1}, {}, {"steps": 2, "tool_calls": 1}])
def test_an_account_that_says_something_else_than_the_log_is_seen(store: Store, used: dict[str, int]) -> None:
    store.commit(run_of(stands("session 7/s", **used)))
    (wrong,) = contradictions(store, {})
    assert wrong.startswith("session 7/s stands at ")


def test_an_account_that_is_not_there_is_seen(store: Store) -> None:
    store.commit([change for change in run_of() if "tenant t" not in change.values])
    assert list(contradictions(store, {})) == ["tenant t stands at {}, its runs' events say {'steps': 2}"]


def test_an_account_beyond_its_limit_is_seen(store: Store) -> None:
    store.commit(run_of())
    assert list(contradictions(store, {"session": {"steps": 1}})) == ["session 7/s may have 1 steps, and has had 2"]


@pytest.mark.parametrize("kind", [EventKind.CALL_ENDED, EventKind.APPROVAL_CONSUMED, EventKind.RUN_SETTLED])
def test_what_ends_twice_is_seen(store: Store, kind: EventKind) -> None:
    store.commit(run_of(*[said(kind, call="c")] * 2))
    (wrong,) = contradictions(store, {})
    assert wrong == f"{kind} of {'r' if kind is EventKind.RUN_SETTLED else 'c'}: 2 times"


def test_a_run_that_has_lost_an_event_is_seen(store: Store, tmp_path: Path) -> None:
    store.commit(run_of(said(EventKind.RUN_SETTLED)))
    gap = Change("UPDATE events SET data = json_set(data, '$.run_seq', 4) WHERE kind = 'run_settled'")
    store.commit([gap])
    (wrong,) = contradictions(store, {})
    assert wrong == "run r: its event 3 has the number 4"


# ---------------------------------------------------------------- books


def waiting(answer: str = "approve") -> Question:
    result = CallResult("c", "trust_ask", Status.WAITING_FOR_APPROVAL, durable=True, approval="a")
    return Question(answer, answer, waits=result)


def test_a_run_must_wait_while_all_that_is_left_of_it_waits_and_nobody_has_begun_to_answer(tmp_path: Path) -> None:
    run = Books(tmp_path).open()
    assert not run.must_wait
    run.questions = [waiting(), waiting()]
    assert run.must_wait
    run.questions[0].said = True
    assert not run.must_wait
    run.questions[0].result = CallResult("c", "trust_ask", Status.OK)
    assert run.must_wait
    run.questions[1].waits = None
    assert not run.must_wait


def test_a_run_that_a_person_has_ended_need_not_wait() -> None:
    run = Steered("r", "s", questions=[waiting("stop"), waiting()])
    run.questions[0].said, run.questions[0].result = True, CallResult("c", "trust_ask", Status.NOT_EXECUTED)
    assert not run.must_wait


def test_what_was_told_is_firm_with_the_next_thing_that_is_on_the_disk() -> None:
    run = Steered("r", "s")
    run.sent.update(steps=1, tokens_in=20)
    run.told.update(steps=1, tokens_in=4)
    run.spare.update(tokens_in=16)
    assert (run.firm["steps"], run.sent["tokens_in"]) == (0, 20)
    run.confirm()
    run.confirm()
    assert (run.firm["steps"], run.firm["tokens_in"], run.sent["tokens_in"]) == (1, 4, 4)


@pytest.mark.parametrize("code", ["overloaded", "unknown_run"])
def test_what_a_daemon_refuses_while_it_lives_is_not_taken_for_its_death(code: str) -> None:
    with pytest.raises(RequestRefused), until_it_is_gone():
        raise RequestRefused(ErrorInfo(ErrorClass.ARGUMENT, code, ""))


@pytest.mark.parametrize(
    "gone", [ConnectionLost(), RequestRefused(ErrorInfo(ErrorClass.ARGUMENT, "shutdown", "")), DaemonSilent("x", 1)]
)
def test_a_daemon_that_is_gone_is_only_asked_no_more(gone: Exception) -> None:
    with until_it_is_gone():
        raise gone


# ---------------------------------------------------------------- faults of a loop


def test_a_seed_gives_the_same_scripts_and_each_can_be_played(tmp_path: Path) -> None:
    for number in range(30):
        one, other = (scenario(number, 7, tmp_path / "effects") for _ in range(2))
        assert one == other
        assert len(Script.load(str(one.write(tmp_path))).turns) == len(one.turns)
        assert one.ends


def test_the_first_runs_have_each_fault_alone_and_then_all_of_them(tmp_path: Path) -> None:
    faults = [scenario(number, 7, tmp_path / "effects").faults for number in range(7)]
    assert faults == [*((fault,) for fault in FAULTS), FAULTS]


def events(*kinds: str) -> list[Event]:
    return [
        Event(at, 0, kind, "c" if kind.startswith("call") else None, "r", 7, {"run_seq": at}, "")
        for at, kind in enumerate(kinds, 1)
    ]


DONE = StopRecord(
    "r",
    "done",
    RunStatus.COMPLETED,
    RunReason.FINISH_ACCEPTED,
    None,
    1,
    "",
    "Completed.",
    "none",
    resumable=False,
    deadline=RunDeadline(1, 1, 0),
    budgets={},
)


def test_a_run_with_its_beginning_and_its_end_is_whole() -> None:
    assert not list(
        faults_of_a_loop._wrong_log(DONE, events("run_admitted", "call_validated", "call_ended", "run_settled"))
    )


@pytest.mark.parametrize(
    "kinds",
    [
        ("call_ended", "run_settled"),
        ("run_admitted", "call_ended"),
        ("run_admitted", "run_settled", "run_settled"),
        ("run_admitted", "decide_started", "run_settled"),
        ("run_admitted", "call_validated", "run_settled"),
        ("run_admitted", "call_validated", "call_ended", "call_ended", "run_settled"),
    ],
)
def test_a_log_without_a_beginning_or_with_other_than_one_end_of_each_thing_is_seen(kinds: tuple[str, ...]) -> None:
    assert list(faults_of_a_loop._wrong_log(DONE, events(*kinds)))


def test_a_gap_in_the_numbers_of_a_run_is_seen() -> None:
    whole = events("run_admitted", "step_begun", "run_settled")
    assert list(faults_of_a_loop._wrong_log(DONE, [whole[0], whole[2]]))
