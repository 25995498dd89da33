"""The machine of one run: how each end comes about, and that no sequence of inputs ends it twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._checks import FieldValue
from protocol._deadlines import NEVER_NS
from protocol._runs import RunReason, RunStatus
from supervisor.core import run as machine
from supervisor.core.run import RunMachine, State

DEADLINE = 1_000_000
STOP = machine.StopAsked(RunStatus.STUCK, RunReason.REPEAT_CALL, 10)
CONFIRMATION = (RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED)
WAITED = machine.Waited(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, 100)


def stop() -> machine.StopAsked:
    return machine.StopAsked(RunStatus.STUCK, RunReason.REPEAT_CALL, 10)


def cancel(now: int = 20) -> machine.StopAsked:
    return machine.StopAsked(RunStatus.CANCELLED, RunReason.CLIENT, now, ends_calls=True)


def spent(now: int = 10) -> machine.StopAsked:
    return machine.StopAsked(RunStatus.BUDGET_EXHAUSTED, RunReason.STEP_BUDGET, now)


def busy(calls: int = 1, **settings: int) -> RunMachine:
    run = RunMachine(DEADLINE, **settings)
    for _ in range(calls):
        assert run.on(machine.Began()) == ()
    return run


def settled(effects: machine.Effects) -> machine.Settle:
    (effect,) = [one for one in effects if isinstance(one, machine.Settle)]
    return effect


def test_a_stop_with_nothing_in_flight_settles_at_once() -> None:
    end = settled(RunMachine(DEADLINE).on(stop()))
    assert (end.status, end.reason, end.phase) == (RunStatus.STUCK, RunReason.REPEAT_CALL, "decide")


@pytest.mark.behaviour("M106")
def test_a_refused_reservation_lets_the_admitted_siblings_end_and_then_settles() -> None:
    run = busy(2)
    assert run.on(spent()) == ()
    assert run.on(machine.Ended(11)) == ()
    end = settled(run.on(machine.Ended(12)))
    assert (end.status, end.reason, end.at_ns) == (RunStatus.BUDGET_EXHAUSTED, RunReason.STEP_BUDGET, 12)


def test_a_cancel_ends_the_calls_and_settles_when_they_have_ended() -> None:
    run = busy(1)
    assert run.on(cancel()) == (machine.EndCalls(RunReason.CLIENT),)
    assert settled(run.on(machine.Ended(30))).status is RunStatus.CANCELLED


def test_a_cancel_behind_another_stop_ends_the_calls_and_changes_no_reason() -> None:
    run = busy(1)
    run.on(stop())
    assert run.on(cancel()) == (machine.EndCalls(RunReason.CLIENT),)
    assert settled(run.on(machine.Ended(30))).reason is RunReason.REPEAT_CALL


@pytest.mark.parametrize(("calls", "phase"), [(0, "decide"), (1, "tool")])
@pytest.mark.behaviour("M021")
def test_the_deadline_names_the_phase_that_it_struck(calls: int, phase: str) -> None:
    run = busy(calls)
    assert run.next_timer_ns() == DEADLINE
    effects = run.on(machine.Overdue(DEADLINE))
    if calls:
        effects = run.on(machine.Ended(DEADLINE + 5))
    end = settled(effects)
    assert (end.status, end.reason, end.phase) == (RunStatus.BUDGET_EXHAUSTED, RunReason.TIME_BUDGET, phase)


def test_the_deadline_in_a_check_is_of_the_phase_complete_and_ends_the_check() -> None:
    run = RunMachine(DEADLINE, checks=True)
    assert run.on(machine.FinishAsked("done", 5)) == (machine.Check(0),)
    run.on(machine.Began())
    assert run.on(machine.Overdue(DEADLINE)) == (machine.EndCalls(RunReason.TIME_BUDGET),)
    assert settled(run.on(machine.Ended(DEADLINE + 1))).phase == "complete"


@pytest.mark.behaviour("M022")
def test_nothing_but_a_suspension_moves_the_deadline() -> None:
    run = RunMachine(DEADLINE, checks=True)
    run.on(machine.Began())
    run.on(machine.Ended(5))
    run.on(machine.FinishAsked("", 6))
    run.on(machine.CheckEnded("no", 7))
    assert run.deadline_ns == run.next_timer_ns() == DEADLINE
    run.on(WAITED)
    assert run.next_timer_ns() == NEVER_NS
    assert run.on(machine.Answered(10 * DEADLINE)) == (machine.Resume(10 * DEADLINE + DEADLINE - 100),)


@pytest.mark.behaviour("M024")
def test_a_run_that_waits_or_is_over_wants_no_timer() -> None:
    for end in (stop(), cancel(), WAITED, machine.FinishAsked("", 5)):
        run = RunMachine(DEADLINE)
        run.on(end)
        assert run.next_timer_ns() == NEVER_NS


def test_a_clock_that_runs_on_ends_a_run_that_waits() -> None:
    run = RunMachine(DEADLINE, pauses=False)
    run.on(WAITED)
    assert run.next_timer_ns() == DEADLINE
    assert settled(run.on(machine.Overdue(DEADLINE))).reason is RunReason.TIME_BUDGET


def test_a_run_waits_for_a_person_only_when_nothing_is_in_flight() -> None:
    run = busy(1)
    assert run.on(WAITED) == ()
    (suspend,) = run.on(machine.Ended(200))
    assert isinstance(suspend, machine.Suspend)
    assert (suspend.reason, suspend.remaining_ns) == (RunReason.APPROVAL_REQUIRED, DEADLINE - 200)


def test_an_answer_before_the_last_call_ended_suspends_nothing() -> None:
    run = busy(1)
    run.on(WAITED)
    run.on(machine.Answered(150))
    assert run.on(machine.Ended(200)) == ()
    assert run.state is State.RUNNING


def test_a_suspended_run_can_be_cancelled() -> None:
    run = RunMachine(DEADLINE)
    run.on(WAITED)
    assert settled(run.on(cancel())).status is RunStatus.CANCELLED


def test_a_finish_without_checks_completes() -> None:
    end = settled(RunMachine(DEADLINE).on(machine.FinishAsked("42", 5)))
    assert (end.status, end.reason, end.answer) == (RunStatus.COMPLETED, RunReason.FINISH_ACCEPTED, "42")


def test_a_finish_beside_a_call_is_refused_and_counts_for_nothing() -> None:
    run = busy(1)
    (refused,) = run.on(machine.FinishAsked("42", 5))
    assert isinstance(refused, machine.RefuseFinish)
    assert refused.refusals == 0


@pytest.mark.behaviour("M031")
def test_a_finish_is_done_only_when_the_checks_say_so_too() -> None:
    run = RunMachine(DEADLINE, checks=True)
    run.on(machine.FinishAsked("42", 5))
    assert run.on(machine.CheckEnded("red", 6)) == (machine.RefuseFinish("red", 1),)
    run.on(machine.FinishAsked("43", 7))
    end = settled(run.on(machine.CheckEnded(None, 8)))
    assert (end.status, end.answer) == (RunStatus.COMPLETED, "43")


def test_each_check_has_its_turn_and_the_first_that_fails_is_the_answer() -> None:
    run = RunMachine(DEADLINE, checks=3)
    assert run.on(machine.FinishAsked("42", 5)) == (machine.Check(0),)
    assert run.on(machine.CheckEnded(None, 6)) == (machine.Check(1),)
    assert run.on(machine.CheckEnded("red", 7)) == (machine.RefuseFinish("red", 1),)
    assert run.on(machine.FinishAsked("43", 8)) == (machine.Check(0),), "it begins anew"
    run.on(machine.CheckEnded(None, 9))
    assert run.on(machine.CheckEnded(None, 10)) == (machine.Check(2),)
    assert settled(run.on(machine.CheckEnded(None, 11))).answer == "43"


FIELDS = {"order": FieldValue("4711", ("c_1",))}


def confirming(checks: int = 1, passed: int = 0, plain: bool = False) -> RunMachine:
    """A run whose next check is a person, who is asked."""
    run = RunMachine(DEADLINE, checks=checks)
    run.on(machine.FinishAsked("42", 5, plain, FIELDS))
    for now in range(passed):
        run.on(machine.CheckEnded(None, now))
    (suspend,) = run.on(machine.Waited(*CONFIRMATION, 100))
    assert isinstance(suspend, machine.Suspend)
    assert (suspend.answer, suspend.fields, suspend.phase) == ("42", FIELDS, "complete")
    assert run.state is State.SUSPENDED
    return run


@pytest.mark.behaviour("M120")
def test_a_person_s_yes_goes_on_with_the_next_check_and_the_last_one_completes() -> None:
    run = confirming(checks=3, passed=1)
    later = 10 * DEADLINE
    assert run.on(machine.Answered(later, "fine")) == (
        machine.Resume(later + DEADLINE - 100, "fine", "complete"),
        machine.Check(2),
    )
    end = settled(run.on(machine.CheckEnded(None, later + 1)))
    assert (end.status, end.reason, end.answer, end.fields) == (
        RunStatus.COMPLETED,
        RunReason.FINISH_ACCEPTED,
        "42",
        FIELDS,
    )


@pytest.mark.behaviour("M120")
def test_a_person_s_no_refuses_the_finish_and_the_run_goes_on() -> None:
    run = confirming(checks=2)
    assert run.on(machine.CheckEnded(None, 150)) == (), "nothing but a person's answer is a yes"
    resume, refuse = run.on(machine.CheckEnded("not yet", 200))
    assert isinstance(resume, machine.Resume)
    assert refuse == machine.RefuseFinish("not yet", 1)
    assert (run.state, run.finish, run.confirming) == (State.RUNNING, None, None)
    assert run.on(machine.FinishAsked("43", 300)) == (machine.Check(0),)


def test_a_person_s_no_is_told_three_times_and_the_fourth_is_stuck() -> None:
    run = RunMachine(DEADLINE, checks=1)
    for number in (1, 2, 3, 4):
        run.on(machine.FinishAsked("", number))
        run.on(machine.Waited(*CONFIRMATION, number))
        effects = run.on(machine.CheckEnded("no", number))
        assert number == 4 or machine.RefuseFinish("no", number) in effects
    assert settled(effects).status is RunStatus.STUCK


def test_a_finish_that_waits_for_a_person_goes_on_in_another_life_as_it_was() -> None:
    run = confirming(checks=2, passed=1, plain=True)
    kept = run.confirming
    assert kept is not None
    other = RunMachine(5 * DEADLINE, checks=2)
    other.revive(DEADLINE - 100, machine.Waited(*CONFIRMATION, 7), 2, kept)
    assert other.confirming == kept
    end = settled(other.on(machine.Answered(1_000)))
    assert (end.reason, end.answer, end.fields) == (RunReason.FINAL_TEXT, "42", FIELDS)


def test_a_run_that_waits_for_something_else_is_not_finished_by_the_answer() -> None:
    run = RunMachine(DEADLINE, checks=1)
    run.on(WAITED)
    assert run.on(machine.CheckEnded("no", 5)) == ()
    assert run.on(machine.CheckEnded(None, 5)) == ()
    run.on(machine.Answered(6))
    assert run.state is State.RUNNING


def test_checks_that_could_not_be_run_count_for_nothing() -> None:
    run = RunMachine(DEADLINE, checks=True)
    for now in range(5, 10):
        run.on(machine.FinishAsked("", now))
        assert run.on(machine.CheckEnded("the queue is full", now, ran=False)) == (
            machine.RefuseFinish("the queue is full", 0),
        )


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_refused_finish_is_told_as_often_as_it_may_be_and_once_more_the_run_is_stuck(most: int) -> None:
    run = RunMachine(DEADLINE, checks=True, most_refusals=most)
    for number in range(1, most + 1):
        run.on(machine.FinishAsked("", number))
        assert run.on(machine.CheckEnded("red", number)) == (machine.RefuseFinish("red", number),)
    run.on(machine.FinishAsked("", 7))
    assert settled(run.on(machine.CheckEnded("red", 7))).status is RunStatus.STUCK


@pytest.mark.behaviour("M133")
def test_a_budget_that_is_used_up_leaves_what_was_held_back_to_conclude() -> None:
    run = RunMachine(DEADLINE, wrap_up_ns=1_000)
    assert run.work_until_ns == DEADLINE - 1_000
    assert run.on(spent(10)) == (machine.WrapUp(1_010),)
    end = settled(run.on(machine.FinishAsked("as far as I got", 500)))
    assert (end.status, end.reason, end.answer) == (
        RunStatus.BUDGET_EXHAUSTED,
        RunReason.STEP_BUDGET,
        "as far as I got",
    )


def test_a_wrap_up_never_goes_beyond_the_deadline_and_ends_without_an_answer() -> None:
    run = RunMachine(DEADLINE, wrap_up_ns=1_000)
    assert run.on(machine.Overdue(DEADLINE - 1_000)) == (machine.WrapUp(DEADLINE),)
    end = settled(run.on(machine.Overdue(DEADLINE)))
    assert (end.reason, end.phase, end.answer) == (RunReason.TIME_BUDGET, "decide", None)


def test_a_stop_shortly_before_the_deadline_leaves_only_that_much_to_conclude() -> None:
    assert RunMachine(DEADLINE, wrap_up_ns=1_000).on(spent(DEADLINE - 400)) == (machine.WrapUp(DEADLINE),)


@pytest.mark.parametrize(("held_back", "words"), [(0, "its deadline passed"), (1_000, "the time for its work passed")])
def test_a_run_whose_work_is_cut_off_for_a_last_word_is_not_said_to_have_passed_its_deadline(
    held_back: int, words: str
) -> None:
    run = RunMachine(DEADLINE, wrap_up_ns=held_back)
    effects = run.on(machine.Overdue(run.work_until_ns, "decide"))
    over = effects if held_back == 0 else run.on(machine.Overdue(DEADLINE))
    assert settled(over).detail.startswith(words)


def test_a_run_that_is_stuck_gets_no_wrap_up() -> None:
    assert settled(RunMachine(DEADLINE, wrap_up_ns=1_000).on(stop())).status is RunStatus.STUCK


INPUTS = [
    machine.Began,
    lambda: machine.Ended(50),
    stop,
    cancel,
    spent,
    lambda: machine.Waited(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, 60),
    lambda: machine.Answered(70),
    lambda: machine.FinishAsked("a", 80),
    lambda: machine.CheckEnded(None, 90),
    lambda: machine.CheckEnded("red", 90),
    lambda: machine.Overdue(DEADLINE),
]


def test_every_cell_is_written() -> None:
    kinds = {type(make()) for make in INPUTS}
    assert set(machine._TABLE) == set(itertools.product(State, kinds))


def test_a_person_is_not_asked_while_a_check_is_in_flight() -> None:
    run = RunMachine(DEADLINE, checks=True)
    run.on(machine.FinishAsked("done", 5))
    run.on(machine.Began())
    assert (run.on(WAITED), run.state) == ((), State.CHECKING)


@given(st.lists(st.sampled_from(INPUTS), max_size=40), st.booleans(), st.sampled_from([0, 1_000]), st.booleans())
def test_no_sequence_settles_a_run_twice_or_beside_a_call(inputs: list, checks: bool, wrap: int, pauses: bool) -> None:
    run = RunMachine(DEADLINE, checks, wrap, pauses)
    ends, in_flight = 0, 0
    for make in inputs:
        given_input = make()
        if isinstance(given_input, machine.Began) and run.state not in (State.RUNNING, State.CHECKING):
            continue  # nothing begins where nothing is let through
        if isinstance(given_input, machine.Ended) and not in_flight:
            continue
        in_flight += isinstance(given_input, machine.Began) - isinstance(given_input, machine.Ended)
        for effect in run.on(given_input):
            if isinstance(effect, machine.Settle | machine.Suspend):
                assert in_flight == 0
            ends += isinstance(effect, machine.Settle)
    assert ends == (run.state is State.SETTLED)


def test_a_finish_of_a_run_that_waits_is_answered_by_its_waiting() -> None:
    run = RunMachine(DEADLINE)
    run.on(WAITED)
    assert run.on(machine.FinishAsked("done", 110)) == ()
    assert run.state is State.SUSPENDED


def test_who_knows_better_says_what_the_run_was_doing_at_its_deadline() -> None:
    run = busy(1)
    assert run.on(machine.Overdue(DEADLINE, "backoff")) == ()
    assert settled(run.on(machine.Ended(DEADLINE + 1))).phase == "backoff"
