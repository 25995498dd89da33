"""``deadlined exec --json``: the result object that every call of the product has, made of an `Ending`.

Loaded for ``--json`` only: msgspec and the result's types cost as much as the rest of the command.
"""

from __future__ import annotations

import os
import signal

import msgspec

from deadlined.cli import exec_capture, exec_view
from deadlined.cli.exec_ending import Ending, exit_code, sentence
from protocol._deadlines import NS_PER_MS, elapsed_ms
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
)
from protocol._quantities import say_duration

_ENDS = {
    "deadline": (Status.KILLED, Reason.TIME_BUDGET, Delivery.UNKNOWN, ErrorClass.KILLED, "deadline"),
    "too_late": (Status.NOT_EXECUTED, Reason.TIME_BUDGET, Delivery.NOT_DELIVERED, ErrorClass.KILLED, "deadline"),
    "cancelled": (Status.CANCELLED, Reason.CLIENT, Delivery.UNKNOWN, ErrorClass.KILLED, "cancelled"),
    "output_limit": (Status.KILLED, Reason.OUTPUT_LIMIT, Delivery.UNKNOWN, ErrorClass.KILLED, "output_limit"),
    "not_found": (Status.ERROR, None, Delivery.FAILED_DEFINITE, ErrorClass.ARGUMENT, "not_found"),
    "cannot_run": (Status.ERROR, None, Delivery.FAILED_DEFINITE, ErrorClass.ARGUMENT, "cannot_run"),
    "refused": (Status.NOT_EXECUTED, Reason.CONTAINMENT, Delivery.NOT_DELIVERED, ErrorClass.POLICY, "containment"),
    "bad_option": (
        Status.NOT_EXECUTED,
        Reason.INVALID_ARGUMENTS,
        Delivery.NOT_DELIVERED,
        ErrorClass.ARGUMENT,
        "bad_option",
    ),
}
_LOST = (Status.CRASHED, Reason.WORKER_LOST, Delivery.UNKNOWN, ErrorClass.WORKER_LOST, "worker_lost")
_NEVER_RAN = ("not_found", "cannot_run", "too_late", "refused", "bad_option")


def result_line(ending: Ending, captures: list[exec_capture.Capture]) -> bytes:
    """The result as one line of JSON."""
    ending.report.message = _sayable(ending.report.message)
    return msgspec.json.encode(result_of(ending, captures)) + b"\n"


def result_of(ending: Ending, captures: list[exec_capture.Capture]) -> CallResult:
    """The result of a call. Its output has no path: the raw file had no name and is gone with this process."""
    report = ending.report
    status, reason, delivery, error = _outcome(ending)
    result = CallResult(
        call=f"c_{os.urandom(8).hex()}",
        tool="exec",
        status=status,
        reason=reason,
        phase="tool" if report.how == "deadline" else "queue" if report.how == "too_late" else None,
        error=error,
        delivery=delivery,
        exit=_exit(ending),
        timing=_timing(ending),
        output=_output(ending, captures),
        kill=_receipt(ending),
        left_processes=report.left,
        containment=ending.containment if report.how not in ("refused", "bad_option") else "",
        isolation=_isolation(ending),
        usage=None if report.how in _NEVER_RAN else Usage(report.cpu_us // 1000, report.rss_kib * 1024),
        notices=_notices(ending),
    )
    lasted = f"after {say_duration(result.timing.duration_ms)}"
    said = sentence(ending)
    result.summary = f"exec: {status} {lasted}" + (f"; {said}" if said else "")
    return result


def _outcome(ending: Ending) -> tuple[Status, Reason | None, Delivery, ErrorInfo | None]:
    report = ending.report
    if report.how != "exited":
        status, reason, delivery, error_class, code = _ENDS.get(report.how, _LOST)
        return status, reason, delivery, ErrorInfo(error_class, code, sentence(ending))
    if report.code == 0:
        return Status.OK, None, Delivery.SUCCEEDED, None
    by_signal = report.code is not None and report.code < 0
    how = f"signal {_signal_name(-(report.code or 0))}" if by_signal else f"exit code {report.code}"
    error = ErrorInfo(ErrorClass.FEEDBACK, "signal" if by_signal else "exit", f"the command ended with {how}")
    return Status.ERROR, None, Delivery.FAILED_DEFINITE, error


def _sayable(text: str) -> str:
    """Without the lone surrogates by which Python keeps bytes of a file name that are not UTF-8."""
    return text.encode(errors="replace").decode()


def _exit(ending: Ending) -> Exit | None:
    report = ending.report
    if report.how in ("not_found", "cannot_run"):
        return Exit(exit_code(ending))
    if report.code is None:
        return Exit(None, "SIGKILL") if report.signalled_ns else None
    return Exit(report.code) if report.code >= 0 else Exit(None, _signal_name(-report.code))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _timing(ending: Ending) -> Timing:
    started_ns = ending.report.started_ns
    return Timing(
        started_ms=elapsed_ms(ending.started_ns, started_ns) if started_ns else None,
        duration_ms=elapsed_ms(ending.started_ns, ending.ended_ns),
        deadline_ms=ending.deadline_ms,
        overrun_ms=max(0, elapsed_ms(ending.deadline_ns, ending.ended_ns)),
    )


def _receipt(ending: Ending) -> KillReceipt | None:
    report = ending.report
    if not report.signalled_ns:
        return None
    confirmed = None if ending.confirmed_ns is None else _ms(ending.confirmed_ns - report.due_ns)
    return KillReceipt(
        [ending.containment],
        max(1, report.killed),
        _ms(report.signalled_ns - report.due_ns),
        confirmed,
        confirmed is not None,
    )


def _ms(ns: int) -> float:
    return round(max(0, ns) / NS_PER_MS, 3)


def _isolation(ending: Ending) -> Isolation:
    """What was reached; what is more than this build can give stays missing by name."""
    missing = [word for word in ending.report.missing.split(",") if word]
    achieved = ending.isolation if ending.report.how not in ("refused", "bad_option") else "none"
    if ending.wanted_isolation in ("guard", "bwrap"):
        missing.append(ending.wanted_isolation)
    return Isolation(ending.wanted_isolation, achieved, missing)


def _output(ending: Ending, captures: list[exec_capture.Capture]) -> OutputInfo:
    sizes = {capture.name: StreamInfo(capture.size()) for capture in captures}
    view, valid = exec_view.view(captures)
    return OutputInfo(
        bytes=sum(stream.bytes for stream in sizes.values()) + ending.report.dropped,
        truncated=ending.report.how == "output_limit" or ending.report.dropped > 0,
        view=view,
        streams=sizes or {"both": StreamInfo()},
        invalid_utf8=not valid,
    )


def _notices(ending: Ending) -> list[Notice]:
    notices = []
    if ending.report.left:
        count = ending.report.left
        text = f"{count} process{'es' if count > 1 else ''} still ran when the call had ended and were killed"
        notices.append(Notice("left_processes", "info", text))
    if ending.second_line:
        notices.append(
            Notice("second_line", "warn", "the call's first process did not kill on time; the second line did")
        )
    if ending.report.dropped:
        notices.append(
            Notice("output_lost", "warn", f"{ending.report.dropped} bytes of output found no room on the disk")
        )
    return notices
