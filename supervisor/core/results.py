"""From the machine's settlement to the result a caller reads. Pure: every fact comes in, one CallResult goes out."""

from __future__ import annotations

import signal as signals

from protocol._deadlines import NS_PER_MS, elapsed_ms
from protocol._outcomes import (
    WENT_WELL,
    CallResult,
    Delivery,
    ErrorClass,
    ErrorInfo,
    Exit,
    KillReceipt,
    Notice,
    OutputInfo,
    Reason,
    Status,
    Timing,
    Usage,
)
from protocol._quantities import say_duration
from protocol._worker_messages import Ended
from supervisor.core.advice import next_action
from supervisor.core.call import Death, Settle
from supervisor.core.call_facts import Facts

_RETRYABLE = {Reason.OVERLOADED, Reason.POOL_UNHEALTHY, Reason.SPAWN_FAILED, Reason.STORE_UNAVAILABLE}
_REFUSED_CLASS = {
    Reason.POLICY_DENIED: ErrorClass.POLICY,
    Reason.SANDBOX_DENIED: ErrorClass.POLICY,
    Reason.MISSING_SECRET: ErrorClass.POLICY,
    Reason.APPROVAL_REQUIRED: ErrorClass.POLICY,
    Reason.APPROVAL_REJECTED: ErrorClass.POLICY,
    Reason.OVERLOADED: ErrorClass.OVERLOADED,
    Reason.POOL_UNHEALTHY: ErrorClass.OVERLOADED,
    Reason.STORE_UNAVAILABLE: ErrorClass.OVERLOADED,
    Reason.SUPERVISOR_BUG: ErrorClass.BUG,
}
NO_OUTPUT = OutputInfo()
"""Shared by every result without output; a result with some gets an object of its own."""
_REMOTE = (
    "what the call had asked others to do (a server, a container engine, a database, another host) did not end with it"
    " and may go on"
)
_TERMINATED = (
    "SIGTERM was sent {} before the deadline, and the call ended after that: it may have stopped half-way, whatever it"
    " says"
)
_ORDINALS = ("", "1st", "2nd", "3rd", *(f"{number}th" for number in range(4, 11)))
_COMMAND_CODES = {"not_found": 127, "cannot_run": 126}


def result_of(facts: Facts, settle: Settle) -> CallResult:
    """The result, without its output (see `OutputInfo`; the shell adds it)."""
    ended, death = settle.ended, settle.death
    result = CallResult(
        facts.call,
        facts.tool,
        settle.status,
        facts.run,
        settle.reason,
        settle.phase if settle.reason is Reason.TIME_BUDGET else None,
        delivery=settle.delivery,
        timing=_timing(facts, settle),
        output=NO_OUTPUT,
        containment=facts.containment,
        isolation=facts.isolation,
        idempotency_key=facts.key,
        attempts=facts.attempts,
        approval=facts.approval,
    )
    if settle.status not in WENT_WELL:
        result.error = _error(facts, settle)
        result.retryable = _retryable(facts, settle, result.error.class_)
    if settle.status is not Status.OK:
        result.next_action = next_action(facts, settle)
    if ended is not None:
        _add_answer(result, ended, facts.mechanism)
    if death is not None:
        _add_death(result, death, facts.mechanism)
    if result.left_processes or result.left_threads or settle.late_result:
        _add_notices(result, settle)
    if ended is not None and facts.term_grace_ms and _was_terminated(facts, settle):
        result.notices.append(Notice("term_sent", "warn", _TERMINATED.format(say_duration(facts.term_grace_ms))))
    if settle.delivery is Delivery.UNKNOWN and _reaches_elsewhere(facts):
        result.notices.append(Notice("remote_work_possible", "warn", _REMOTE))
    result.summary = _summary(result)
    return result


def _timing(facts: Facts, settle: Settle) -> Timing:
    submitted, started, at = facts.submitted_ns, facts.started_ns, settle.at_ns
    return Timing(
        elapsed_ms(submitted, at if started is None else started),
        None if started is None else elapsed_ms(submitted, started),
        elapsed_ms(submitted, at),
        facts.deadline_ms,
        elapsed_ms(facts.deadline_ns, at) if at > facts.deadline_ns else 0,
    )


def _add_answer(result: CallResult, ended: Ended, mechanism: list[str]) -> None:
    result.content = ended.content
    if ended.swept_us is None:
        result.left_processes, result.left_threads = ended.left_processes, ended.left_threads
    else:  # what the cap killed was the call itself, nothing that it left; due at the instant it was signalled
        swept_ms = ended.swept_us / 1_000
        result.kill = KillReceipt(mechanism[:1], ended.left_processes, 0.0, swept_ms, confirmed=True)
    result.usage = Usage(ended.cpu_ms, ended.max_rss_bytes)
    if ended.how == "exit":
        result.exit = Exit(ended.code, ended.signal)
    elif ended.how in _COMMAND_CODES:
        result.exit = Exit(_COMMAND_CODES[ended.how])


def _add_death(result: CallResult, death: Death, mechanism: list[str]) -> None:
    if death.signalled_ns or death.confirmed_ns is None:
        result.kill = KillReceipt(
            mechanism,
            max(1, death.seen),
            round(max(0, death.signalled_ns - death.due_ns) / NS_PER_MS, 3),
            None if death.confirmed_ns is None else round(max(0, death.confirmed_ns - death.due_ns) / NS_PER_MS, 3),
            death.confirmed_ns is not None,
            death.survivors,
        )
        result.exit = Exit(None, "SIGKILL")
    if death.reaped is not None:
        result.usage = Usage(death.reaped.cpu_ms, death.reaped.max_rss_bytes)
        if result.exit is None:
            result.exit = Exit(death.reaped.code, signal_name(death.reaped.signal))


def signal_name(number: int | None) -> str | None:
    """``SIGKILL`` for 9; a number that has no name as ``SIG64``."""
    if number is None:
        return None
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _add_notices(result: CallResult, settle: Settle) -> None:
    if result.left_processes:
        what = _count(result.left_processes, "process", "processes", ("was", "were"))
        text = f"{what[0]} still ran when the call had ended and {what[1]} killed"
        result.notices.append(Notice("left_processes", "info", text))
    if result.left_threads:
        what = _count(result.left_threads, "thread", "threads", ("was", "were"))
        text = f"{what[0]} {what[1]} left; the worker was replaced"
        result.notices.append(Notice("left_threads", "info", text))
    if settle.late_result:
        result.notices.append(Notice("late_result", "info", "an answer came after the end was decided; it was dropped"))


def _count(number: int, one: str, many: str, verbs: tuple[str, str]) -> tuple[str, str]:
    """``("1 process", "was")``, ``("2 processes", "were")``."""
    return (f"{number} {one}", verbs[0]) if number == 1 else (f"{number} {many}", verbs[1])


def _was_terminated(facts: Facts, settle: Settle) -> bool:
    return settle.at_ns >= facts.deadline_ns - facts.term_grace_ms * NS_PER_MS


def _reaches_elsewhere(facts: Facts) -> bool:
    """Whether something that no kill reaches may go on (decision 0015)."""
    if facts.after_kill:
        return False
    return not facts.read_only if facts.remote is None else facts.remote


def _retryable(facts: Facts, settle: Settle, error: ErrorClass) -> bool:
    if settle.reason in _RETRYABLE or settle.passes:
        return True
    # A stop of the daemon ends calls that nobody asked to end: what changes nothing may be asked for again.
    lost = settle.status in (Status.CRASHED, Status.KILLED) or settle.reason is Reason.SHUTDOWN
    in_queue = settle.reason is Reason.TIME_BUDGET and settle.phase == "queue"
    passes = lost or in_queue or error is ErrorClass.TRANSIENT_TOOL
    return passes and (settle.delivery is Delivery.NOT_DELIVERED or facts.read_only)


def _error(facts: Facts, settle: Settle) -> ErrorInfo:
    match settle.status:
        case Status.ERROR:
            assert settle.ended is not None
            return _answered_error(settle.ended)
        case Status.KILLED:
            return ErrorInfo(ErrorClass.KILLED, _killed_code(settle), _killed_text(facts, settle))
        case Status.CRASHED:
            return ErrorInfo(ErrorClass.WORKER_LOST, str(settle.reason), settle.detail or _crash_text(settle))
        case Status.CANCELLED:
            return ErrorInfo(ErrorClass.KILLED, "cancelled", settle.detail or f"ended on request ({settle.reason})")
        case _:
            return _refusal(settle)


def _answered_error(ended: Ended) -> ErrorInfo:
    if ended.how == "exit" and ended.code is None and ended.signal is None:
        text = "the command has ended; its exit status is unknown, somebody else has collected it"
        return ErrorInfo(ErrorClass.TOOL, "exit_unknown", text)
    if ended.how == "exit":
        how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.code}"
        return ErrorInfo(ErrorClass.FEEDBACK, "signal" if ended.signal else "exit", f"the command ended with {how}")
    if ended.how == "raised":
        return ErrorInfo(_class_of(ended.error_class), ended.error_code or "raised", ended.message or "the tool raised")
    return ErrorInfo(ErrorClass.ARGUMENT, ended.how, ended.message or ended.how)


def _class_of(word: str | None) -> ErrorClass:
    """A worker's word for an error class; anything it made up is an ordinary tool error."""
    try:
        return ErrorClass(word or "tool")
    except ValueError:
        return ErrorClass.TOOL


def _refusal(settle: Settle) -> ErrorInfo:
    reason = settle.reason or Reason.SUPERVISOR_BUG
    if reason is Reason.TIME_BUDGET:
        text = settle.detail or "the deadline passed in the queue; the call did not run"
        return ErrorInfo(ErrorClass.KILLED, "deadline", text)
    message = settle.detail or (settle.ended.message if settle.ended else None) or str(reason)
    code = (settle.ended.error_code if settle.ended else None) or str(reason)
    return ErrorInfo(_REFUSED_CLASS.get(reason, ErrorClass.ARGUMENT), code, message)


def _killed_code(settle: Settle) -> str:
    return "deadline" if settle.reason is Reason.TIME_BUDGET else str(settle.reason)


def _killed_text(facts: Facts, settle: Settle) -> str:
    if settle.detail:
        return settle.detail
    if settle.phase == "backoff":
        return f"its deadline of {say_duration(facts.deadline_ms)} came before it could be tried again"
    if settle.reason is Reason.TIME_BUDGET and settle.delivery is Delivery.NOT_DELIVERED:
        return f"killed at its deadline of {say_duration(facts.deadline_ms)}, before its worker had begun it"
    if settle.reason is Reason.TIME_BUDGET:
        return (
            f"killed at its deadline of {say_duration(facts.deadline_ms)} while it ran; "
            "what is meant to go on is submitted detached, with a deadline of its own"
        )
    return {
        Reason.OUTPUT_LIMIT: "killed: its output reached the limit",
        Reason.MEMORY_LIMIT: "killed by the kernel: its memory reached the limit",
        Reason.IDLE: "killed: no output and no progress for too long",
    }.get(settle.reason or Reason.IDLE, "killed")


def _crash_text(settle: Settle) -> str:
    reaped = settle.death.reaped if settle.death else None
    if reaped is None or (reaped.code is None and reaped.signal is None):  # the status was collected elsewhere
        return "the worker died during the call"
    how = f"signal {signal_name(reaped.signal)}" if reaped.signal else f"exit code {reaped.code}"
    return f"the worker died during the call ({how})"


def _summary(result: CallResult) -> str:
    """One line for people: tool, what became of it, how long it took, what was left."""
    why = f" ({result.reason})" if result.reason else ""
    line = f"{result.tool}: {result.status}{why} after {say_duration(result.timing.duration_ms)}"
    if result.attempts > 1:
        line += f", at the {_ORDINALS[result.attempts]} attempt"
    if result.kill is None:
        return line
    confirmed = result.kill.confirmed_after_ms
    return f"{line} – " + ("NOT CONFIRMED" if confirmed is None else f"gone {say_duration(confirmed)} after the kill")
