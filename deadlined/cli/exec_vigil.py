"""The watch of ``deadlined exec`` over a started call: signals from outside, the second line, the kernel's word.

Signals. SIGTERM, SIGHUP and a SIGINT or SIGQUIT that somebody *sent* end the call. A SIGINT or SIGQUIT from the
terminal's keys has reached the command as well, which stands in the same foreground group: it is the command's to
answer, as under ``timeout --foreground``. What the caller had ignored (``nohup``, a background job) stays ignored.
"""

from __future__ import annotations

import os
import time

from deadlined.cli.exec_ending import Ending
from supervisor.containment.kill import SECOND_LINE_NS, kill_by_pidfd
from toolworkers import _oneshot, _signals, _world
from toolworkers._children import direct_children
from toolworkers._oneshot_report import Report

_CONFIRM_BUDGET_NS = 1_000_000_000
_GUARD_NS, _LONE_GUARD_NS = 50_000_000, 500_000_000
"""How long after the deadline a guard is killed itself: it ends one process after another. Where nobody would end what
it leaves, it has more time."""
_NS_PER_S = 1_000_000_000
_ENDING_SIGNALS = (_signals.SIGTERM, _signals.SIGHUP, _signals.SIGINT, _signals.SIGQUIT)
_KEYS = {_signals.SIGINT: _oneshot.INTERRUPT, _signals.SIGQUIT: _oneshot.QUIT}


def hold_signals() -> list[int]:
    """Keep what ends the call pending, from before the fork on: nothing may end us between the fork and the watch."""
    held = [number for number in _ENDING_SIGNALS if not _signals.is_ignored(number)]
    _signals.set_default(_signals.SIGCHLD)  # a caller that ignores it would have the kernel reap pid 1 for us, unseen
    held.append(_signals.SIGCHLD)
    _signals.block(held)
    return held


class Vigil:
    """The watch over a started call: the second line, signals from outside, and the wait for the kernel's word."""

    def __init__(self, started: _oneshot.Started, deadline_ns: int, grace_ns: int, held: list[int]) -> None:
        self._started, self._deadline_ns, self._grace_ns, self._held = started, deadline_ns, grace_ns, held
        self._kill_ns = deadline_ns
        self._shot_ns = 0
        self._cancelled_by = 0
        self._confirmed_ns: int | None = None
        self._second_line_ns = SECOND_LINE_NS
        if started.guarded:
            self._second_line_ns = _GUARD_NS if started.strays_come_here else _LONE_GUARD_NS
        self._first_ended = False
        self._pid_status = 0
        self._used_us = self._rss_kib = 0

    def keep(self) -> None:
        """Return when the kernel has shown the end of every process, or the confirm budget is spent."""
        while not self._gone():
            limit = self._shot_ns + _CONFIRM_BUDGET_NS if self._shot_ns else self._kill_ns + self._second_line_ns
            came = _signals.wait(self._held, (limit - time.monotonic_ns()) / _NS_PER_S)
            if came is not None:
                self._heed(*came)
            elif self._shot_ns:
                return
            else:
                self._shot_ns = time.monotonic_ns()
                kill_by_pidfd(self._started.pidfd)

    def ending(self, started_ns: int, deadline_ms: int) -> Ending:
        """What became of the call, from pid 1's report or, when it left none, from what was seen here."""
        report = self._report()
        ending = Ending(report, started_ns, self._confirmed_ns or time.monotonic_ns(), deadline_ms)
        ending.confirmed_ns = self._confirmed_ns
        ending.cancelled_by = self._cancelled_by
        ending.second_line = self._shot_ns > 0 and report.signalled_ns == self._shot_ns
        if self._confirmed_ns is None:
            from deadlined.cli.exec_survivors import survivors

            ending.survivors = survivors(self._started.pid, direct_children() if self._started.guarded else None)
        return ending

    def _gone(self) -> bool:
        """Pid 1 can be reaped only after everything in its namespace is dead and reaped (pid_namespaces(7)). A guard
        that exits with 0 has seen to that itself; what any other leaves is ours to end."""
        if not self._first_ended and not self._reap_first():
            return False
        if self._started.guarded and self._pid_status != 0 and self._strays():
            return not self._started.strays_come_here  # nobody's to end, and nobody's to confirm
        self._confirmed_ns = time.monotonic_ns()
        return True

    def _reap_first(self) -> bool:
        pid, self._pid_status, used = os.wait4(self._started.pid, os.WNOHANG)
        if pid == 0:
            return False
        self._first_ended = True
        self._used_us, self._rss_kib = int((used.ru_utime + used.ru_stime) * 1e6), used.ru_maxrss
        return True

    def _strays(self) -> bool:
        """Whether somebody may be left of a guard that was killed. Ends who came to us; a SIGCHLD asks again."""
        if not self._started.strays_come_here:
            return True
        for pid in _world.kill_children():
            os.waitpid(pid, os.WNOHANG)
        left = direct_children()
        if left:  # dying, or waiting in the kernel: then it would keep all below it
            _world.kill_kindred(left, None)
        return bool(left)

    def _heed(self, number: int, code: int) -> None:
        if number == _signals.SIGCHLD:
            return
        if number in _KEYS and code == _signals.SI_KERNEL:
            self._tell(_KEYS[number])
            return
        again = self._cancelled_by != 0
        self._cancelled_by = self._cancelled_by or number
        grace_ns = 0 if again else self._grace_ns
        self._kill_ns = min(self._kill_ns, time.monotonic_ns() + grace_ns)
        self._tell(_oneshot.END)

    def _tell(self, word: bytes) -> None:
        """To pid 1. It may have ended (EPIPE) or be stopped with a full pipe (EAGAIN): then the second line acts."""
        try:
            os.write(self._started.control, word)
        except OSError:
            return

    def _report(self) -> Report:
        os.set_blocking(self._started.report, False)
        report = Report.decode(_read(self._started.report))
        if report is None or report.how == "begun":
            report = self._own_report(report)
        elif report.how == "refused":
            report.message = explain(report.message)
        elif report.how == "broken":
            report.message = f"internal error in the call's first process: {report.message}"
        if report.signalled_ns and not report.rss_kib:  # pid 1 was ended before its last word; its own use is in here
            report.cpu_us, report.rss_kib = self._used_us, self._rss_kib
        return report

    def _own_report(self, begun: Report | None) -> Report:
        """For a first process that had no last word: ours was the kill, or somebody else's."""
        if not self._shot_ns:
            how = os.waitstatus_to_exitcode(self._pid_status)
            return Report("broken", f"the call's first process was ended from outside ({how}), and the call with it")
        if begun is None and not self._cancelled_by:
            return Report("too_late")
        report = begun or Report("")
        report.how = "cancelled" if self._cancelled_by else "deadline"
        report.due_ns, report.signalled_ns = self._kill_ns, self._shot_ns
        return report


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except BlockingIOError:
        return b""


def explain(refused: str) -> str:
    """Why the host refused, with the setting that would have to change."""
    from toolworkers._refusal import why_no_namespaces

    return why_no_namespaces(refused, os.getuid() == 0)
