"""How a call of ``deadlined exec`` ended: its exit code and the sentence for people. Pure: every fact comes in.

The numbers are a contract (`docs` and `exec --help` list them): 124 wherever the deadline was the reason, 125 where we
failed, 126 and 127 as a shell has them, 128+n for signals.
"""

from __future__ import annotations

from protocol._deadlines import NS_PER_MS
from protocol._quantities import say_duration, say_size

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from toolworkers._oneshot_report import Report

_EXIT = {"deadline": 124, "too_late": 124, "output_limit": 1, "not_found": 127, "cannot_run": 126}
FAILED = 125
_SIGNAL_BASE = 128


class Ending:
    """Facts about one call. Instants in CLOCK_MONOTONIC nanoseconds; ``confirmed_ns`` None: the kernel has not shown
    the end of every process, ``survivors`` says of which. ``cancelled_by``: the signal that asked us to end it."""

    __slots__ = (
        "cancelled_by",
        "confirmed_ns",
        "containment",
        "deadline_ms",
        "deadline_ns",
        "ended_ns",
        "isolation",
        "output_limit",
        "report",
        "second_line",
        "started_ns",
        "survivors",
        "wanted_isolation",
    )

    def __init__(self, report: Report, started_ns: int, ended_ns: int, deadline_ms: int) -> None:
        self.report = report
        self.started_ns, self.ended_ns = started_ns, ended_ns
        self.deadline_ms = deadline_ms
        self.deadline_ns = started_ns + deadline_ms * NS_PER_MS
        self.confirmed_ns: int | None = ended_ns
        self.cancelled_by = 0
        self.output_limit = 0
        self.second_line = False
        self.survivors: list[str] = []
        self.wanted_isolation = self.isolation = "contain"
        self.containment = "pidns"

    @property
    def was_killed(self) -> bool:
        """Whether we ended it, rather than it itself."""
        return self.report.how in ("deadline", "cancelled", "output_limit")


def exit_code(ending: Ending) -> int:
    """What ``deadlined exec`` exits with."""
    report = ending.report
    if report.how == "exited":
        assert report.code is not None
        return report.code if report.code >= 0 else _SIGNAL_BASE - report.code
    if report.how == "cancelled":
        return _SIGNAL_BASE + ending.cancelled_by
    return _EXIT.get(report.how, FAILED)


def sentence(ending: Ending) -> str:
    """What a person wants to know beside the exit code, in one line; empty when there is nothing to say."""
    report = ending.report
    if ending.confirmed_ns is None:
        left = "; ".join(ending.survivors) or "nobody can be seen"
        return f"killed, but the kernel has NOT confirmed the end of all processes. Left: {left}"
    match report.how:
        case "exited":
            return f"{_processes(report.left)} left behind, killed" if report.left else ""
        case "deadline":
            return f"{_ended(ending)} at the deadline of {say_duration(ending.deadline_ms)}{_gone(ending)}"
        case "too_late":
            return f"the deadline of {say_duration(ending.deadline_ms)} passed before the command could start"
        case "cancelled":
            return f"{_ended(ending)} on request (signal {ending.cancelled_by}){_gone(ending)}"
        case "output_limit":
            return f"killed: it wrote more than {say_size(ending.output_limit)}{_gone(ending)}"
        case _:
            return report.message


def _ended(ending: Ending) -> str:
    return "killed" if ending.report.signalled_ns else "ended by SIGTERM"


def _gone(ending: Ending) -> str:
    report = ending.report
    if not report.signalled_ns or ending.confirmed_ns is None:
        return ""
    after = say_duration(max(0, ending.confirmed_ns - report.due_ns) / NS_PER_MS)
    who = f"{_processes(report.killed)} " if report.killed else "everything "
    by_whom = " by the second line" if ending.second_line else ""
    return f": {who}gone{by_whom} after {after}"


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"
