"""From a settlement to the result a caller reads."""

from __future__ import annotations

import msgspec
import pytest

from protocol import Delivery, ErrorClass, Isolation, Reason, Status
from protocol._outcomes import Survivor
from protocol._worker_messages import Ended, Reaped
from supervisor.core.call import Death, Settle
from supervisor.core.call_facts import Facts
from supervisor.core.results import result_of, signal_name

MS = 1_000_000


def facts(read_only: bool = False) -> Facts:
    isolation = Isolation("contain", "contain")
    return Facts("c_1", "shell", 0, 100 * MS, 100, 5 * MS, "pidns", isolation, ["pidns"], "key", None, read_only)


def answered(ended: Ended, status: Status, reason: Reason | None = None) -> Settle:
    return Settle(status, reason, Delivery.SUCCEEDED, 40 * MS, "tool", ended)


def killed(death: Death, reason: Reason = Reason.TIME_BUDGET, at: int = 103 * MS) -> Settle:
    return Settle(Status.KILLED, reason, Delivery.UNKNOWN, at, "tool", None, death)


def test_times_are_counted_from_submission_and_the_overrun_from_the_deadline():
    timing = result_of(facts(), killed(Death(100 * MS, 101 * MS, 103 * MS, 3))).timing
    assert (timing.queued_ms, timing.started_ms, timing.duration_ms) == (5, 5, 103)
    assert (timing.deadline_ms, timing.overrun_ms) == (100, 3)


def test_a_call_that_ended_early_has_no_overrun():
    assert result_of(facts(), answered(Ended(1, "ok"), Status.OK)).timing.overrun_ms == 0


def test_a_kill_has_a_receipt():
    result = result_of(facts(), killed(Death(100 * MS, 100 * MS + 400_000, 101 * MS + 900_000, 3)))
    assert result.kill is not None
    assert (result.kill.killed, result.kill.confirmed) == (3, True)
    assert (result.kill.signalled_after_ms, result.kill.confirmed_after_ms) == (0.4, 1.9)
    assert result.exit is not None
    assert result.exit.signal == "SIGKILL"
    assert (result.phase, result.error.class_, result.error.code) == ("tool", ErrorClass.KILLED, "deadline")


def test_an_unconfirmed_kill_says_so():
    result = result_of(facts(), killed(Death(100 * MS, 101 * MS, None, 2)))
    assert result.kill is not None
    assert (result.kill.confirmed, result.kill.confirmed_after_ms) == (False, None)
    assert "NOT CONFIRMED" in result.summary


@pytest.mark.parametrize(
    ("reaped", "code", "signal"), [(Reaped(1, 7, None, 5, 6), 7, None), (Reaped(1, None, 11, 5, 6), None, "SIGSEGV")]
)
def test_a_crash_tells_its_exit_and_its_usage(reaped, code, signal):
    settle = Settle(
        Status.CRASHED, Reason.WORKER_LOST, Delivery.UNKNOWN, 40 * MS, "tool", None, Death(0, 0, 1, 0, reaped)
    )
    result = result_of(facts(), settle)
    assert (result.exit.code, result.exit.signal) == (code, signal)
    assert result.kill is None
    assert (result.usage.cpu_ms, result.usage.max_rss_bytes) == (5, 6)


def test_a_status_that_somebody_else_collected_is_unknown_and_no_0():
    result = result_of(facts(), answered(Ended(1, "exit"), Status.ERROR))
    assert (result.exit.code, result.exit.signal, result.error.code) == (None, None, "exit_unknown")
    crashed = Settle(
        Status.CRASHED,
        Reason.WORKER_LOST,
        Delivery.UNKNOWN,
        40,
        "tool",
        None,
        Death(0, 0, 1, 0, Reaped(1, None, None, 0, 0)),
    )
    result = result_of(facts(), crashed)
    assert (result.exit.code, result.status) == (None, Status.CRASHED)
    assert "None" not in result.error.message


def test_a_failing_command_is_feedback_and_no_failure_of_the_tool():
    result = result_of(facts(), answered(Ended(1, "exit", code=3), Status.ERROR))
    assert (result.error.class_, result.error.code, result.exit.code) == (ErrorClass.FEEDBACK, "exit", 3)
    assert not result.retryable


@pytest.mark.parametrize(("how", "code"), [("not_found", 127), ("cannot_run", 126)])
def test_a_command_that_could_not_start_has_the_shells_code(how, code):
    result = result_of(facts(), answered(Ended(1, how, message="no"), Status.ERROR))
    assert (result.exit.code, result.error.class_) == (code, ErrorClass.ARGUMENT)


def test_a_tools_own_word_for_its_error_is_kept_and_an_invented_class_is_not():
    ended = Ended(1, "raised", message="later", error_class="transient_tool", error_code="busy")
    assert result_of(facts(), answered(ended, Status.ERROR)).error.class_ is ErrorClass.TRANSIENT_TOOL
    ended = Ended(1, "raised", message="x", error_class="royal", error_code="busy")
    assert result_of(facts(), answered(ended, Status.ERROR)).error.class_ is ErrorClass.TOOL


def test_leftovers_are_counted_and_noticed_and_change_no_status():
    result = result_of(facts(), answered(Ended(1, "exit", code=0, left_processes=2, left_threads=1), Status.OK))
    assert (result.status, result.left_processes, result.left_threads) == ("ok", 2, 1)
    assert [notice.detector for notice in result.notices] == ["left_processes", "left_threads"]


def test_what_is_lost_is_retryable_when_nothing_ran_or_nothing_can_have_changed():
    death = Death(0, 1, 2, 1)
    assert not result_of(facts(), killed(death)).retryable
    assert result_of(facts(read_only=True), killed(death)).retryable
    settle = Settle(Status.CRASHED, Reason.WORKER_LOST, Delivery.NOT_DELIVERED, 40 * MS, "tool", None, death)
    assert result_of(facts(), settle).retryable


@pytest.mark.parametrize(
    ("read_only", "error", "retryable"),
    [(True, "transient_tool", True), (False, "transient_tool", False), (True, "argument", False)],
)
def test_a_failure_that_passes_is_retryable_where_nothing_can_have_changed(read_only, error, retryable):
    ended = Ended(1, "raised", message="later", error_class=error, error_code="busy")
    assert result_of(facts(read_only=read_only), answered(ended, Status.ERROR)).retryable is retryable


def test_a_call_that_died_in_the_queue_says_so():
    settle = Settle(Status.NOT_EXECUTED, Reason.TIME_BUDGET, Delivery.NOT_DELIVERED, 101 * MS, phase="queue")
    result = result_of(facts(), settle)
    assert (result.phase, result.error.code, result.retryable) == ("queue", "deadline", True)


def test_a_call_of_a_run_whose_time_is_over_was_in_no_queue():
    settle = Settle(Status.NOT_EXECUTED, Reason.TIME_BUDGET, Delivery.NOT_DELIVERED, 0, detail="the run has ended")
    result = result_of(facts(), settle)
    assert (result.error.message, result.retryable) == ("the run has ended", False)


def test_overload_may_be_tried_again():
    settle = Settle(Status.NOT_EXECUTED, Reason.OVERLOADED, Delivery.NOT_DELIVERED, 0, detail="the queue is full")
    result = result_of(facts(), settle)
    assert (result.retryable, result.error.message) == (True, "the queue is full")


def test_a_signal_without_a_name_is_still_told():
    assert (signal_name(9), signal_name(64), signal_name(250), signal_name(None)) == (
        "SIGKILL",
        "SIGRTMAX",
        "SIG250",
        None,
    )


def test_what_the_output_cap_killed_is_no_leftover_and_has_a_receipt():
    ended = Ended(1, "output_limit", left_processes=3, swept_us=1_500)
    result = result_of(facts(), Settle(Status.KILLED, Reason.OUTPUT_LIMIT, Delivery.UNKNOWN, 40 * MS, "tool", ended))
    assert (result.left_processes, result.error.code) == (0, "output_limit")
    assert "left_processes" not in [notice.detector for notice in result.notices]
    assert (result.kill.killed, result.kill.confirmed_after_ms, result.kill.confirmed) == (3, 1.5, True)


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 process still ran when the call had ended and was killed"), (2, "2 processes still ran")]
)
def test_leftovers_are_counted_in_words(count, said):
    result = result_of(facts(), answered(Ended(1, "exit", code=0, left_processes=count), Status.OK))
    assert said in result.notices[0].text


def test_who_did_not_die_is_in_the_receipt():
    left = [Survivor(7, 0, "sleep 9", "D", "nfs_wait")]
    result = result_of(facts(), killed(Death(100 * MS, 101 * MS, None, 2, survivors=left)))
    assert result.kill is not None
    assert result.kill.survivors == left
    assert "not dead yet" in (result.next_action or "")


def elsewhere(**fields: object) -> bool:
    told = msgspec.structs.replace(facts(), **fields)
    result = result_of(told, killed(Death(100 * MS, 101 * MS, 103 * MS, 3)))
    return "remote_work_possible" in [notice.detector for notice in result.notices]


def test_work_elsewhere_is_possible_after_a_kill_unless_the_tool_says_otherwise():
    assert elsewhere()
    assert not elsewhere(read_only=True)
    assert elsewhere(read_only=True, remote=True)
    assert not elsewhere(remote=False)
    assert not elsewhere(remote=True, after_kill=True)


def test_work_elsewhere_is_not_mentioned_of_a_call_that_ended_by_itself_or_did_not_run():
    good = result_of(facts(), answered(Ended(1, "exit", code=0), Status.OK))
    queued = result_of(facts(), Settle(Status.NOT_EXECUTED, Reason.TIME_BUDGET, Delivery.NOT_DELIVERED, 101 * MS))
    assert (good.notices, queued.notices) == ([], [])


@pytest.mark.parametrize(("grace_ms", "told"), [(0, False), (59, False), (60, True), (100, True)])
def test_an_answer_after_the_grace_has_begun_is_marked(grace_ms, told):
    """It answers 60 ms before its deadline."""
    given = msgspec.structs.replace(facts(), term_grace_ms=grace_ms)
    result = result_of(given, answered(Ended(1, "exit", code=0), Status.OK))
    assert ("term_sent" in [notice.detector for notice in result.notices]) is told
    assert result.status is Status.OK


@pytest.mark.parametrize(
    ("delivery", "says"),
    [(Delivery.UNKNOWN, "while it ran"), (Delivery.NOT_DELIVERED, "before its worker had begun it")],
)
def test_a_call_that_had_not_begun_is_not_said_to_have_run(delivery, says):
    settle = msgspec.structs.replace(killed(Death(100 * MS, 101 * MS, 103 * MS, 1)), delivery=delivery)
    assert says in result_of(facts(), settle).error.message


def test_a_call_that_was_tried_again_says_how_often():
    tried = msgspec.structs.replace(facts(), attempts=3)
    result = result_of(tried, answered(Ended(1, "ok"), Status.OK))
    assert (result.attempts, result.summary) == (3, "shell: ok after 40 ms, at the 3rd attempt")
    assert "attempt" not in result_of(facts(), answered(Ended(1, "ok"), Status.OK)).summary


def test_a_deadline_between_two_attempts_is_told_as_that_and_nothing_is_said_of_a_call_that_ran():
    between = Settle(Status.KILLED, Reason.TIME_BUDGET, Delivery.UNKNOWN, 101 * MS, "backoff")
    result = result_of(facts(read_only=True), between)
    assert (result.phase, result.kill, result.next_action, result.retryable) == ("backoff", None, None, True)
    assert result.error is not None
    assert (result.error.code, result.error.message) == (
        "deadline",
        "its deadline of 100 ms came before it could be tried again",
    )
