"""The machine of one call: every cell of its table, and what each end is called."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import Contract, Delivery, Reason, Status
from protocol._contracts import AfterKill, Retry
from protocol._outcomes import Survivor
from protocol._worker_messages import Ended, Reaped
from supervisor.core import call as machine
from supervisor.core.call import CallMachine, State

DEADLINE = 1_000_000_000
EARLY, LATE = DEADLINE - 1, DEADLINE
OK = Ended(1, "ok", content=7, reusable=True)


def running(grace_ms: int = 0) -> CallMachine:
    call = CallMachine(DEADLINE, grace_ms)
    assert call.on(machine.Placed(1)) == (machine.Dispatch(),)
    assert call.on(machine.Accepted(2)) == ()
    return call


def settlement(effects: machine.Effects) -> machine.Settle:
    (settle,) = [effect for effect in effects if isinstance(effect, machine.Settle)]
    return settle


def outcome(effects: machine.Effects) -> tuple[Status, Reason | None, Delivery]:
    settle = settlement(effects)
    return settle.status, settle.reason, settle.delivery


def test_an_answer_in_time_settles_and_frees_the_worker():
    effects = running().on(machine.Answered(OK, EARLY))
    assert outcome(effects) == (Status.OK, None, Delivery.SUCCEEDED)
    assert effects[1] == machine.Release(True)


def test_an_answer_at_the_deadline_loses_and_waits_for_the_kernel():
    call = running()
    assert call.on(machine.Answered(OK, LATE)) == (machine.Kill(DEADLINE),)
    settle = settlement(call.on(machine.Died(LATE + 5, signalled_ns=LATE)))
    assert (settle.status, settle.reason, settle.late_result) == (Status.KILLED, Reason.TIME_BUDGET, True)
    assert settle.ended is None


def test_an_answer_read_after_the_killer_struck_loses_even_before_the_deadline():
    call = running()
    assert call.on(machine.Answered(OK, EARLY, killed_ns=EARLY - 1)) == (machine.Kill(DEADLINE),)
    assert call.state is State.DYING


def test_the_deadline_is_learnt_from_the_death_alone():
    settle = settlement(running().on(machine.Died(LATE + 9, signalled_ns=LATE + 1, seen=3)))
    assert (settle.status, settle.reason, settle.delivery) == (Status.KILLED, Reason.TIME_BUDGET, Delivery.UNKNOWN)
    assert settle.death == machine.Death(DEADLINE, LATE + 1, LATE + 9, 3)


def test_a_worker_that_dies_unasked_is_lost():
    reaped = Reaped(1, None, 11, 5, 6)
    settle = settlement(running().on(machine.Died(50, reaped=reaped)))
    assert (settle.status, settle.reason, settle.delivery) == (Status.CRASHED, Reason.WORKER_LOST, Delivery.UNKNOWN)
    assert settle.death is not None
    assert settle.death.reaped == reaped


def test_a_death_in_a_group_out_of_memory_is_the_memory_limit():
    assert outcome(running().on(machine.Died(50, out_of_memory=True)))[1] is Reason.MEMORY_LIMIT


def test_the_deadline_outranks_memory_once_the_killer_has_struck():
    assert outcome(running().on(machine.Died(50, signalled_ns=49, out_of_memory=True)))[1] is Reason.TIME_BUDGET


def test_a_call_whose_worker_was_dead_when_it_came_goes_to_another_one_once():
    call = CallMachine(DEADLINE)
    call.on(machine.Placed(1))
    assert call.on(machine.Died(50)) == (machine.PlaceAgain(),)
    assert (call.state, call.started_ns) == (State.WAITING, None)
    assert call.on(machine.Placed(60)) == (machine.Dispatch(),)
    assert outcome(call.on(machine.Died(70))) == (Status.CRASHED, Reason.WORKER_LOST, Delivery.NOT_DELIVERED)


@pytest.mark.parametrize("accepts", [True, False])
def test_a_frame_that_no_socket_took_is_no_delivery_and_goes_to_another_worker_once(accepts):
    call = CallMachine(DEADLINE, accepts=accepts)
    for _ in range(2):
        call.on(machine.Placed(1))
        assert call.on(machine.Unsent(2)) == (machine.Kill(2),)
        effects = call.on(machine.Died(50, signalled_ns=3))
        if call.state is State.WAITING:
            assert effects == (machine.PlaceAgain(),)
    assert outcome(effects) == (Status.CRASHED, Reason.WORKER_LOST, Delivery.NOT_DELIVERED)


@pytest.mark.parametrize(
    "death", [machine.Died(LATE), machine.Died(50, signalled_ns=49), machine.Died(50, out_of_memory=True)]
)
def test_a_call_is_not_placed_again_when_its_time_is_up_or_its_worker_was_killed(death):
    call = CallMachine(DEADLINE)
    call.on(machine.Placed(1))
    assert outcome(call.on(death))[2] is Delivery.NOT_DELIVERED


def test_a_call_that_is_cancelled_while_its_broken_worker_dies_is_not_placed_again():
    call = CallMachine(DEADLINE)
    call.on(machine.Placed(1))
    call.on(machine.Unsent(2))
    call.on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 3))
    assert outcome(call.on(machine.Died(4))) == (Status.CANCELLED, Reason.CLIENT, Delivery.NOT_DELIVERED)


def test_a_read_only_call_counts_as_accepted_once_it_is_placed():
    call = CallMachine(DEADLINE, accepts=False)
    call.on(machine.Placed(1))
    assert call.state is State.RUNNING
    assert outcome(call.on(machine.Died(50)))[2] is Delivery.UNKNOWN
    assert outcome(CallMachine(DEADLINE, accepts=False).on(machine.Expired(LATE)))[2] is Delivery.NOT_DELIVERED


def test_an_acceptance_read_while_dying_still_counts_for_the_delivery():
    call = CallMachine(DEADLINE)
    call.on(machine.Placed(1))
    call.on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 2))
    call.on(machine.Accepted(3))
    assert outcome(call.on(machine.Died(4, signalled_ns=3)))[2] is Delivery.UNKNOWN


def test_a_cancel_kills_at_once_and_settles_after_the_kernel():
    call = running()
    assert call.on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 10)) == (machine.Kill(10),)
    assert outcome(call.on(machine.Died(12, signalled_ns=11))) == (Status.CANCELLED, Reason.CLIENT, Delivery.UNKNOWN)


def test_a_cancel_grants_the_grace_but_never_past_the_deadline():
    assert running(grace_ms=100).on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 10)) == (
        machine.Kill(10 + 100_000_000, 10),
    )
    late = DEADLINE - 50
    assert running(grace_ms=100).on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, late)) == (
        machine.Kill(DEADLINE, late),
    )


def test_the_first_reason_to_end_wins():
    call = running()
    call.on(machine.EndAsked(Status.KILLED, Reason.OUTPUT_LIMIT, 10))
    assert call.on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 11)) == ()
    assert outcome(call.on(machine.Died(12, signalled_ns=11)))[:2] == (Status.KILLED, Reason.OUTPUT_LIMIT)


def test_an_answer_during_the_grace_ends_the_grace_and_is_late():
    call = running(grace_ms=100)
    call.on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 10))
    assert call.on(machine.Answered(OK, 20)) == (machine.Kill(20),)
    settle = settlement(call.on(machine.Died(21, signalled_ns=20)))
    assert (settle.status, settle.late_result) == (Status.CANCELLED, True)


def test_a_spent_confirm_budget_settles_unconfirmed_and_a_later_death_changes_nothing():
    call = running()
    settle = settlement(call.on(machine.ConfirmSpent(LATE + 10, LATE + 1, 2)))
    assert settle.status is Status.KILLED
    assert settle.death == machine.Death(DEADLINE, LATE + 1, None, 2)
    assert call.on(machine.Died(LATE + 99)) == ()


def test_who_did_not_die_is_named():
    left = [Survivor(7, 0, "sleep 9", "D", "nfs_wait")]
    settle = settlement(running().on(machine.ConfirmSpent(LATE + 10, LATE + 1, 2, left)))
    assert settle.death is not None
    assert settle.death.survivors == left


def test_a_call_whose_deadline_passed_in_the_queue_did_not_run():
    for given_input in (machine.Expired(LATE), machine.Placed(LATE)):
        settle = settlement(CallMachine(DEADLINE).on(given_input))
        assert (settle.status, settle.reason) == (Status.NOT_EXECUTED, Reason.TIME_BUDGET)
        assert (settle.phase, settle.delivery) == ("queue", Delivery.NOT_DELIVERED)


def test_a_call_withdrawn_from_the_queue_is_cancelled_not_delivered():
    effects = CallMachine(DEADLINE).on(machine.EndAsked(Status.CANCELLED, Reason.DISCONNECT, 5))
    assert outcome(effects) == (Status.CANCELLED, Reason.DISCONNECT, Delivery.NOT_DELIVERED)


@pytest.mark.parametrize(
    ("ended", "status", "reason", "delivery"),
    [
        (Ended(1, "no_result"), Status.NO_RESULT, None, Delivery.SUCCEEDED),
        (Ended(1, "exit", code=0), Status.OK, None, Delivery.SUCCEEDED),
        (Ended(1, "exit", code=3), Status.ERROR, None, Delivery.FAILED_DEFINITE),
        (Ended(1, "exit", signal="SIGSEGV"), Status.ERROR, None, Delivery.FAILED_DEFINITE),
        (Ended(1, "exit"), Status.ERROR, None, Delivery.UNKNOWN),  # somebody else has collected its exit status
        (Ended(1, "raised"), Status.ERROR, None, Delivery.FAILED_DEFINITE),
        (Ended(1, "not_found"), Status.ERROR, None, Delivery.FAILED_DEFINITE),
        (Ended(1, "invalid_arguments"), Status.NOT_EXECUTED, Reason.INVALID_ARGUMENTS, Delivery.NOT_DELIVERED),
        (Ended(1, "bad_cwd"), Status.NOT_EXECUTED, Reason.INVALID_ARGUMENTS, Delivery.NOT_DELIVERED),
        (Ended(1, "refused"), Status.NOT_EXECUTED, Reason.SANDBOX_DENIED, Delivery.NOT_DELIVERED),
        (Ended(1, "output_limit"), Status.KILLED, Reason.OUTPUT_LIMIT, Delivery.UNKNOWN),
    ],
)
def test_every_answer_has_its_status(ended, status, reason, delivery):
    assert outcome(running().on(machine.Answered(ended, EARLY))) == (status, reason, delivery)


INPUTS = [
    machine.Placed(5),
    machine.Placed(LATE),
    machine.Expired(LATE),
    machine.Accepted(5),
    machine.Unsent(5),
    machine.Answered(OK, EARLY),
    machine.Answered(OK, LATE),
    machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 5),
    machine.Died(6),
    machine.Died(LATE + 1, signalled_ns=LATE),
    machine.ConfirmSpent(LATE + 2),
    machine.RetryRefused(7),
    machine.RetryDue(8),
    machine.RetryDue(LATE),
]
PASSES = Ended(1, "raised", error_class="transient_tool", message="busy", reusable=True)
EVERY_END = Retry(attempts=3, on=("transient_tool", "worker_lost", "memory_limit"))
PATIENT = Contract(idempotent=True, retry=EVERY_END)


def test_the_table_is_total():
    kinds = {type(one) for one in INPUTS}
    assert set(machine._TABLE) == set(itertools.product(State, kinds))


MORE_INPUTS = [*INPUTS, machine.Answered(PASSES, EARLY), machine.Died(6, out_of_memory=True)]


@given(st.lists(st.sampled_from(MORE_INPUTS), max_size=24), st.sampled_from([Contract(), PATIENT]))
@settings(deadline=None)
def test_no_order_of_inputs_settles_a_call_twice(inputs, contract):
    call, settled, begun = CallMachine(DEADLINE, term_grace_ms=10, contract=contract), 0, 0
    for one in inputs:
        effects = call.on(one)
        settled += sum(isinstance(effect, machine.Settle) for effect in effects)
        begun += sum(isinstance(effect, machine.Begin) for effect in effects)
        assert all(effect.at_ns <= DEADLINE for effect in effects if isinstance(effect, machine.Kill))
    assert settled == (call.state is State.SETTLED)
    assert settled <= 1
    assert begun <= (2 if contract is PATIENT else 0)
    assert 1 <= call.attempts <= 1 + begun


def test_a_command_that_the_kernel_killed_for_memory_says_so_and_its_worker_is_not_used_again():
    ended = Ended(1, "exit", signal="SIGKILL", reusable=True)
    effects = running().on(machine.Answered(ended, EARLY, out_of_memory=True))
    assert outcome(effects) == (Status.KILLED, Reason.MEMORY_LIMIT, Delivery.UNKNOWN)
    assert effects[1] == machine.Release(False)
    assert outcome(running().on(machine.Answered(ended, EARLY)))[0] is Status.ERROR


@pytest.mark.parametrize("ended", [Ended(1, "exit", code=0), Ended(1, "exit", code=137), OK])
def test_an_answer_of_a_call_that_lost_a_process_for_memory_is_the_memory_limit(ended):
    effects = running().on(machine.Answered(ended, EARLY, out_of_memory=True))
    assert outcome(effects) == (Status.KILLED, Reason.MEMORY_LIMIT, Delivery.UNKNOWN)


# ---------------------------------------------------------------- another attempt


def patient(contract: Contract = PATIENT) -> CallMachine:
    call = CallMachine(DEADLINE, contract=contract)
    call.on(machine.Placed(1))
    call.on(machine.Accepted(2))
    return call


def retry_in(effects: machine.Effects) -> machine.Retry:
    (retry,) = [effect for effect in effects if isinstance(effect, machine.Retry)]
    assert not any(isinstance(effect, machine.Settle) for effect in effects)
    return retry


def sleeping(contract: Contract = PATIENT, end: machine.Input | None = None) -> CallMachine:
    call = patient(contract)
    call.on(end or machine.Answered(PASSES, 3))
    assert call.state is State.BACKOFF
    return call


def begin_again(call: CallMachine, now_ns: int) -> None:
    assert call.on(machine.RetryDue(now_ns)) == (machine.Begin(),)
    assert call.on(machine.Placed(now_ns)) == (machine.Dispatch(),)
    call.on(machine.Accepted(now_ns))


@pytest.mark.behaviour("M043")
@pytest.mark.behaviour("M113")
def test_a_transient_error_is_tried_again_twice_and_then_is_the_end():
    call = patient()
    for attempt in (1, 2):
        effects = call.on(machine.Answered(PASSES, attempt * 10))
        assert retry_in(effects).cause == "transient_tool"
        assert effects[1] == machine.Release(True)
        assert (call.state, call.attempts, call.started_ns) == (State.BACKOFF, attempt, None)
        begin_again(call, attempt * 10 + 5)
    assert outcome(call.on(machine.Answered(PASSES, 30))) == (Status.ERROR, None, Delivery.FAILED_DEFINITE)
    assert (call.attempts, call.began_ns, call.started_ns) == (3, 1, 25)


def test_an_attempt_that_succeeds_is_the_call():
    call = sleeping()
    begin_again(call, 20)
    effects = call.on(machine.Answered(OK, 30))
    assert outcome(effects) == (Status.OK, None, Delivery.SUCCEEDED)
    assert effects[1] == machine.Release(True)
    assert call.attempts == 2


@pytest.mark.behaviour("M044")
@pytest.mark.behaviour("M047")
@pytest.mark.behaviour("M112")
@pytest.mark.parametrize(
    "ended",
    [
        Ended(1, "raised", error_class="argument"),
        Ended(1, "raised", error_class="policy"),
        Ended(1, "raised", error_class="auth"),
        Ended(1, "raised", error_class="missing_input"),
        Ended(1, "raised", error_class="tool", message="429 Too Many Requests"),
        Ended(1, "raised"),
        Ended(1, "refused", error_class="policy"),
        Ended(1, "invalid_arguments"),
        Ended(1, "not_found"),
        Ended(1, "exit", code=1),
        Ended(1, "exit", code=75),
        Ended(1, "no_result"),
        Ended(1, "output_limit"),
    ],
)
def test_arguments_policy_feedback_and_whatever_a_tool_raises_are_told_and_never_tried_again(ended):
    assert settlement(patient().on(machine.Answered(ended, 3))).ended is ended


@pytest.mark.behaviour("M110")
def test_a_write_that_may_have_happened_is_not_tried_again_and_one_that_never_came_to_its_worker_is():
    writes = Contract(retry=EVERY_END)
    assert outcome(patient(writes).on(machine.Answered(PASSES, 3))) == (Status.ERROR, None, Delivery.FAILED_DEFINITE)
    assert outcome(patient(writes).on(machine.Died(3)))[2] is Delivery.UNKNOWN
    unheard = CallMachine(DEADLINE, contract=writes)
    for _ in range(2):  # the second worker that is dead when it comes
        unheard.on(machine.Placed(1))
        effects = unheard.on(machine.Died(2))
    assert retry_in(effects).ended.delivery is Delivery.NOT_DELIVERED


@pytest.mark.parametrize("contract", [Contract(read_only=True, retry=EVERY_END), PATIENT])
def test_a_lost_worker_is_another_attempt_where_the_contract_says_so(contract):
    assert retry_in(patient(contract).on(machine.Died(3))).cause == "worker_lost"


def test_a_lost_worker_is_the_end_where_the_contract_does_not_say_so():
    assert outcome(patient(Contract(idempotent=True)).on(machine.Died(3)))[1] is Reason.WORKER_LOST


@pytest.mark.case("B034")
@pytest.mark.parametrize("by", ["a death", "the watch", "an answer"])
def test_a_call_that_always_needs_too_much_memory_is_tried_twice_at_most_and_its_end_names_memory(by):
    def too_much(call: CallMachine, now_ns: int) -> machine.Effects:
        if by == "an answer":
            return call.on(machine.Answered(OK, now_ns, out_of_memory=True))
        if by == "the watch":  # which looks again while it dies
            for _ in range(2):
                call.on(machine.EndAsked(Status.KILLED, Reason.MEMORY_LIMIT, now_ns))
        return call.on(machine.Died(now_ns, now_ns if by == "the watch" else 0, out_of_memory=True))

    call = patient()
    assert retry_in(too_much(call, 3)).cause == "memory_limit"
    begin_again(call, 10)
    assert outcome(too_much(call, 12)) == (Status.KILLED, Reason.MEMORY_LIMIT, Delivery.UNKNOWN)
    assert outcome(too_much(patient(Contract(idempotent=True)), 3))[1] is Reason.MEMORY_LIMIT


def test_what_may_still_run_is_not_tried_again():
    call = patient()
    call.on(machine.EndAsked(Status.KILLED, Reason.MEMORY_LIMIT, 3))
    assert outcome(call.on(machine.ConfirmSpent(50, 4)))[1] is Reason.MEMORY_LIMIT


def test_a_call_that_is_cancelled_while_it_dies_of_something_else_is_not_tried_again():
    call = patient()
    call.on(machine.EndAsked(Status.KILLED, Reason.MEMORY_LIMIT, 3))
    assert call.on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 4)) == ()
    assert outcome(call.on(machine.Died(5, 4)))[:2] == (Status.KILLED, Reason.MEMORY_LIMIT)


def test_a_call_whose_hook_belongs_to_its_end_is_not_tried_again_after_a_kill():
    hooked = Contract(idempotent=True, retry=EVERY_END, after_kill=AfterKill(("true",)))
    assert outcome(patient(hooked).on(machine.Died(3)))[1] is Reason.WORKER_LOST
    assert retry_in(patient(hooked).on(machine.Answered(PASSES, 3))).cause == "transient_tool"


@pytest.mark.parametrize("end", [machine.Expired(LATE), machine.RetryDue(LATE)])
def test_the_deadline_between_two_attempts_is_the_deadline_in_the_phase_backoff(end):
    settle = settlement(sleeping().on(end))
    assert (settle.status, settle.reason, settle.phase) == (Status.KILLED, Reason.TIME_BUDGET, "backoff")
    assert (settle.delivery, settle.ended, settle.death) == (Delivery.FAILED_DEFINITE, None, None)


@pytest.mark.parametrize("end", [machine.Expired(LATE), machine.Placed(LATE)])
def test_the_deadline_before_a_worker_was_free_for_the_next_attempt_is_no_call_that_did_not_run(end):
    call = sleeping(end=machine.Died(3))
    call.on(machine.RetryDue(20))
    settle = settlement(call.on(end))
    assert (settle.status, settle.phase, settle.delivery) == (Status.KILLED, "backoff", Delivery.UNKNOWN)


@pytest.mark.behaviour("M088")
@pytest.mark.parametrize("waits_for", ["the time", "a worker"])
def test_a_cancel_between_two_attempts_ends_the_call_at_once(waits_for):
    call = sleeping()
    if waits_for == "a worker":
        call.on(machine.RetryDue(20))
    effects = call.on(machine.EndAsked(Status.CANCELLED, Reason.CLIENT, 30))
    assert outcome(effects) == (Status.CANCELLED, Reason.CLIENT, Delivery.FAILED_DEFINITE)
    assert settlement(effects).ended is None
    assert call.on(machine.RetryDue(40)) == ()


@pytest.mark.parametrize("waits_for", ["the time", "a worker"])
def test_what_keeps_the_next_attempt_from_beginning_leaves_the_end_of_the_one_before(waits_for):
    call = sleeping()
    given_input: machine.Input = machine.RetryRefused(30)
    if waits_for == "a worker":
        call.on(machine.RetryDue(20))
        given_input = machine.EndAsked(Status.NOT_EXECUTED, Reason.OVERLOADED, 30, "no descriptor")
    settle = settlement(call.on(given_input))
    assert (settle.status, settle.reason, settle.at_ns) == (Status.ERROR, None, 30)
    assert (settle.ended, settle.delivery, call.attempts) == (PASSES, Delivery.FAILED_DEFINITE, 1)


@pytest.mark.parametrize(
    ("last", "delivery"),
    [
        (machine.Answered(OK, 30), Delivery.SUCCEEDED),
        (machine.Answered(Ended(1, "raised", error_class="argument"), 30), Delivery.UNKNOWN),
        (machine.Answered(Ended(1, "refused"), 30), Delivery.UNKNOWN),
        (machine.Died(LATE + 1, LATE), Delivery.UNKNOWN),
    ],
)
def test_what_an_earlier_attempt_may_have_done_is_not_forgotten(last, delivery):
    call = sleeping(end=machine.Died(3))
    begin_again(call, 20)
    assert settlement(call.on(last)).delivery is delivery


FIRST_ATTEMPTS: dict[str, list[machine.Input]] = {
    "its end was asked for, and its answer came too late": [
        machine.Accepted(2),
        machine.EndAsked(Status.KILLED, Reason.MEMORY_LIMIT, 3),
        machine.Answered(OK, 4),
        machine.Died(5, 4, out_of_memory=True),
    ],
    "two workers were dead when the call came": [machine.Died(2), machine.Placed(3), machine.Died(4)],
    "its frame was not taken twice": [
        machine.Unsent(2),
        machine.Died(3, 3),
        machine.Placed(4),
        machine.Unsent(5),
        machine.Died(6, 6),
    ],
}


@pytest.mark.behaviour("M166")
@pytest.mark.parametrize("first", FIRST_ATTEMPTS.values(), ids=FIRST_ATTEMPTS)
def test_nothing_of_an_attempt_reaches_the_next_one(first):
    def second() -> CallMachine:
        call = CallMachine(DEADLINE, contract=PATIENT)
        for given_input in (machine.Placed(1), *first):
            call.on(given_input)
        assert call.on(machine.RetryDue(10)) == (machine.Begin(),)
        call.on(machine.Placed(11))
        return call

    unheard, killed, answered = second(), second(), second()
    assert unheard.on(machine.Died(12)) == (machine.PlaceAgain(),)
    killed.on(machine.Accepted(12))
    settle = settlement(killed.on(machine.Died(50, 49)))
    assert (settle.status, settle.reason, settle.late_result) == (Status.KILLED, Reason.TIME_BUDGET, False)
    assert settle.death is not None
    assert settle.death.due_ns == DEADLINE
    assert settlement(answered.on(machine.Answered(OK, 12))).status is Status.OK
