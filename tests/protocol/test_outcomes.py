"""The words for how a call ends, its exit codes, and the shape of the result object."""

from __future__ import annotations

import enum
import re
from typing import Any

import msgspec
import pytest

from protocol import _outcomes as outcomes
from protocol._outcomes import (
    CallResult,
    Delivery,
    ErrorClass,
    ErrorInfo,
    Exit,
    Isolation,
    KillReceipt,
    Notice,
    OutputInfo,
    Reason,
    Status,
    StreamInfo,
    Timing,
    Usage,
    exit_code,
)

TABLE: list[tuple[Status, Reason | None, int]] = [
    (Status.OK, None, 0),
    (Status.NO_RESULT, None, 0),
    (Status.ERROR, None, 1),
    (Status.KILLED, Reason.TIME_BUDGET, 124),
    (Status.NOT_EXECUTED, Reason.TIME_BUDGET, 124),
    (Status.KILLED, Reason.OUTPUT_LIMIT, 1),
    (Status.KILLED, Reason.MEMORY_LIMIT, 1),
    (Status.KILLED, Reason.IDLE, 1),
    (Status.CRASHED, Reason.WORKER_LOST, 1),
    (Status.CRASHED, Reason.PROTOCOL_ERROR, 1),
    (Status.CANCELLED, Reason.CLIENT, 5),
    (Status.CANCELLED, Reason.DISCONNECT, 5),
    (Status.CANCELLED, Reason.OPERATOR, 5),
    (Status.CANCELLED, Reason.SHUTDOWN, 5),
    (Status.CANCELLED, Reason.COLLATERAL_KILL, 5),
    (Status.NOT_EXECUTED, Reason.INVALID_ARGUMENTS, 3),
    (Status.NOT_EXECUTED, Reason.UNKNOWN_TOOL, 3),
    (Status.NOT_EXECUTED, Reason.POLICY_DENIED, 3),
    (Status.NOT_EXECUTED, Reason.SANDBOX_DENIED, 3),
    (Status.NOT_EXECUTED, Reason.BUDGET, 3),
    (Status.NOT_EXECUTED, Reason.KEY_CONFLICT, 3),
    (Status.NOT_EXECUTED, Reason.OVERLOADED, 3),
    (Status.NOT_EXECUTED, Reason.POOL_UNHEALTHY, 3),
    (Status.NOT_EXECUTED, Reason.SPAWN_FAILED, 3),
    (Status.NOT_EXECUTED, Reason.CONTAINMENT, 3),
    (Status.NOT_EXECUTED, Reason.POISON_CALL, 3),
    (Status.NOT_EXECUTED, Reason.STORE_UNAVAILABLE, 3),
    (Status.NOT_EXECUTED, Reason.UNKNOWN_RUN, 3),
    (Status.NOT_EXECUTED, Reason.RUN_SETTLED, 3),
    (Status.NOT_EXECUTED, Reason.MISSING_SECRET, 3),
    (Status.NOT_EXECUTED, Reason.APPROVAL_REJECTED, 3),
    (Status.NOT_EXECUTED, Reason.NO_PROGRESS, 3),
    (Status.NOT_EXECUTED, Reason.BREAKER, 3),
    (Status.DUPLICATE_CALL, Reason.REPEAT_CALL, 3),
    (Status.DUPLICATE_CALL, Reason.REPEAT_ERROR, 3),
    (Status.DUPLICATE_CALL, Reason.SAME_ERROR, 3),
    (Status.DUPLICATE_CALL, Reason.PING_PONG, 3),
    (Status.DUPLICATE_CALL, Reason.CYCLE, 3),
    (Status.TOO_EARLY, Reason.POLL_NO_PROGRESS, 3),
    (Status.WAITING_FOR_APPROVAL, Reason.APPROVAL_REQUIRED, 4),
    (Status.WAITING_FOR_APPROVAL, Reason.RECONCILE_REQUIRED, 4),
    (Status.UNKNOWN, Reason.DAEMON_RESTARTED, 1),
    (Status.UNKNOWN, Reason.SUPERVISOR_BUG, 1),
]


@pytest.mark.parametrize(("status", "reason", "code"), TABLE)
def test_the_exit_codes_are_those_of_the_table(status: Status, reason: Reason | None, code: int) -> None:
    assert exit_code(status, reason) == code


def test_every_status_and_reason_is_in_the_table() -> None:
    assert {status for status, _, _ in TABLE} == set(Status)
    assert {reason for _, reason, _ in TABLE if reason} == set(Reason)


@pytest.mark.parametrize("status", Status)
def test_every_status_has_an_exit_code_with_every_reason(status: Status) -> None:
    for reason in (None, *Reason):
        assert exit_code(status, reason) in {0, 1, 3, 4, 5, 124}
        assert (exit_code(status, reason) == 124) is (reason is Reason.TIME_BUDGET)


def test_only_a_call_that_gave_its_answer_exits_zero() -> None:
    assert {status for status in Status if exit_code(status, None) == 0} == {Status.OK, Status.NO_RESULT}


@pytest.mark.parametrize("words", [Status, Reason, ErrorClass, Delivery])
def test_wire_words_are_lower_snake_and_are_their_own_text(words: type[enum.StrEnum]) -> None:
    for word in words:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", word.value)
        assert word.name == word.value.upper()
        assert f"{word}" == word.value


FULL = CallResult(
    "c_1",
    "shell",
    Status.KILLED,
    run="r_1",
    reason=Reason.TIME_BUDGET,
    phase="tool",
    content={"a": [1, None]},
    items=[1],
    error=ErrorInfo(ErrorClass.KILLED, "deadline", "killed at its deadline of 2.0 s"),
    retryable=True,
    next_action="raise the deadline",
    summary="shell: killed",
    fingerprint="0123456789abcdef",
    exit=Exit(None, "SIGKILL"),
    delivery=Delivery.UNKNOWN,
    timing=Timing(0, 1, 2_001, 2_000, 1),
    output=OutputInfo(5, True, "hello", "/x", {"both": StreamInfo(5, "/x")}, "ab"),
    kill=KillReceipt(["pidns", "cgroup"], 3, 0.4, 1.9, True),
    left_processes=1,
    left_threads=2,
    containment="pidns+cgroup",
    isolation=Isolation("contain", "contain", ["proc"]),
    usage=Usage(3, 9_437_184),
    idempotency_key="KEY",
    replayed=False,
    workdir="/w",
    notices=[Notice("left_processes", "info", "one was left", 3)],
)


@pytest.mark.parametrize("codec", [msgspec.json, msgspec.msgpack])
@pytest.mark.parametrize("result", [FULL, CallResult("c_1", "t", Status.OK)])
def test_a_result_survives_both_codecs(codec: Any, result: CallResult) -> None:
    assert codec.decode(codec.encode(result), type=CallResult) == result


def test_the_result_on_the_wire_has_the_published_fields() -> None:
    told = msgspec.json.decode(msgspec.json.encode(FULL))
    assert list(told["error"]) == ["class", "code", "message"]
    assert set(told) >= set(
        "call run tool status reason phase content items error retryable next_action summary fingerprint exit delivery "
        "timing output kill left_processes left_threads containment isolation usage idempotency_key replayed "
        "notices".split()
    )
    assert set(told["timing"]) == {"queued_ms", "started_ms", "duration_ms", "deadline_ms", "overrun_ms"}
    assert set(told["output"]) == {"bytes", "truncated", "view", "path", "streams", "sha256", "invalid_utf8"}
    times = {"signalled_after_ms", "confirmed_after_ms"}
    assert set(told["kill"]) == {"mechanism", "killed", "confirmed", "survivors"} | times
    assert set(told["isolation"]) == {"wanted", "achieved", "missing"}
    assert set(told["usage"]) == {"cpu_ms", "max_rss_bytes"}
    assert set(told["exit"]) == {"code", "signal"}


def test_an_unknown_word_is_no_result() -> None:
    told = msgspec.json.encode({"call": "c", "tool": "t", "status": "fine"})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(told, type=CallResult)


def test_two_results_share_no_list() -> None:
    one, other = CallResult("c_1", "t", Status.OK), CallResult("c_2", "t", Status.OK)
    one.notices.append(Notice("d", "warn", "x"))
    one.items.append(1)
    one.isolation.missing.append("proc")
    one.output.streams["both"] = StreamInfo()
    one.timing.queued_ms = 9
    assert other == CallResult("c_2", "t", Status.OK)


def test_a_notice_says_only_what_it_has() -> None:
    assert msgspec.to_builtins(Notice("d", "info", "t")) == {"detector": "d", "level": "info", "text": "t"}


def test_every_struct_of_the_module_says_what_it_is() -> None:
    for value in vars(outcomes).values():
        if (
            isinstance(value, type)
            and issubclass(value, (msgspec.Struct, enum.Enum))
            and value.__module__ == outcomes.__name__
        ):
            assert value.__doc__, value
