"""Exit codes and sentences of ``deadlined exec``: the facts come in, the words go out."""

from __future__ import annotations

import pytest

from deadlined.cli.exec_ending import Ending, exit_code, sentence
from deadlined.cli.exec_result import result_of
from protocol._outcomes import Delivery, Reason, Status
from toolworkers._oneshot_report import Report

MS = 1_000_000


def ending(how: str, code: int | None = None, **facts: int) -> Ending:
    """A call started at 0 with a deadline of 2 s that was over after 2.0015 s."""
    report = Report(how, "why")
    report.code, report.started_ns = code, 20 * MS
    for name, value in facts.items():
        setattr(report, name, value)
    made = Ending(report, 0, 2_001_500_000, 2_000)
    made.cancelled_by, made.output_limit = 15, 1024
    return made


KILLED = {"due_ns": 2_000 * MS, "signalled_ns": 2_000 * MS + 400_000, "killed": 3}


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (ending("exited", 0), 0),
        (ending("exited", 7), 7),
        (ending("exited", -9), 137),
        (ending("deadline", None, **KILLED), 124),
        (ending("deadline", 0), 124),
        (ending("too_late"), 124),
        (ending("cancelled", None, **KILLED), 143),
        (ending("output_limit", None, **KILLED), 1),
        (ending("not_found"), 127),
        (ending("cannot_run"), 126),
        (ending("refused"), 125),
        (ending("bad_option"), 125),
        (ending("broken"), 125),
    ],
)
def test_every_ending_has_its_exit_code(made: Ending, code: int) -> None:
    assert exit_code(made) == code


def test_a_kill_is_told_with_its_count_and_its_time() -> None:
    assert (
        sentence(ending("deadline", None, **KILLED)) == "killed at the deadline of 2.0 s: 3 processes gone after 1.5 ms"
    )


def test_an_end_within_the_grace_is_not_called_a_kill() -> None:
    assert sentence(ending("deadline", 0)) == "ended by SIGTERM at the deadline of 2.0 s"


def test_the_second_line_is_told() -> None:
    made = ending("deadline", None, **{**KILLED, "killed": 0})
    made.second_line = True
    assert sentence(made) == "killed at the deadline of 2.0 s: everything gone by the second line after 1.5 ms"
    assert [notice.detector for notice in result_of(made, []).notices] == ["second_line"]


def test_an_ordinary_end_has_nothing_to_say() -> None:
    assert sentence(ending("exited", 7)) == ""
    assert sentence(ending("exited", 0, left=1)) == "1 process left behind, killed"


def test_an_unconfirmed_end_is_never_told_as_an_end() -> None:
    made = ending("deadline", None, **KILLED)
    made.confirmed_ns, made.survivors = None, ["pid 7 (dd) state D in balloon"]
    assert "NOT confirmed" in sentence(made)
    assert "pid 7 (dd)" in sentence(made)
    kill = result_of(made, []).kill
    assert kill is not None
    assert (kill.confirmed, kill.confirmed_after_ms) == (False, None)


def test_the_result_of_a_kill_has_the_receipt_and_the_overrun() -> None:
    result = result_of(ending("deadline", None, **KILLED), [])
    assert (result.status, result.reason, result.phase) == (Status.KILLED, Reason.TIME_BUDGET, "tool")
    assert (result.timing.started_ms, result.timing.duration_ms, result.timing.overrun_ms) == (20, 2_001, 1)
    assert result.kill is not None
    assert (result.kill.killed, result.kill.signalled_after_ms, result.kill.confirmed_after_ms) == (3, 0.4, 1.5)
    assert result.delivery is Delivery.UNKNOWN


@pytest.mark.parametrize(
    ("how", "status", "delivery"),
    [
        ("too_late", Status.NOT_EXECUTED, Delivery.NOT_DELIVERED),
        ("refused", Status.NOT_EXECUTED, Delivery.NOT_DELIVERED),
        ("bad_option", Status.NOT_EXECUTED, Delivery.NOT_DELIVERED),
        ("not_found", Status.ERROR, Delivery.FAILED_DEFINITE),
        ("cannot_run", Status.ERROR, Delivery.FAILED_DEFINITE),
        ("cancelled", Status.CANCELLED, Delivery.UNKNOWN),
        ("broken", Status.CRASHED, Delivery.UNKNOWN),
    ],
)
def test_what_never_ran_is_never_in_doubt(how: str, status: Status, delivery: Delivery) -> None:
    result = result_of(ending(how), [])
    assert (result.status, result.delivery) == (status, delivery)
    assert result.error is not None
    assert result.error.message


def test_an_exit_code_is_feedback_and_a_signal_has_its_name() -> None:
    exited, signalled = result_of(ending("exited", 7), []), result_of(ending("exited", -11), [])
    assert (exited.status, exited.exit and exited.exit.code) == (Status.ERROR, 7)
    assert (signalled.status, signalled.exit and signalled.exit.signal) == (Status.ERROR, "SIGSEGV")
    assert signalled.error is not None
    assert signalled.error.code == "signal"
