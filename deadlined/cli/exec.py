"""``deadlined exec``: one call without a daemon, for whoever types ``timeout`` today.

Two processes: this one, and pid 1 of the call's namespace, which is itself the killer (`toolworkers/_oneshot.py`).
Owns: the order of a call on this side, signals from outside, the second line, the confirmation, what is said and the
exit code. Nothing heavy is imported on the way (a cold ``exec -- true`` is a start of Python and little more);
``--json`` pays for its own.

Signals. SIGTERM, SIGHUP and a SIGINT or SIGQUIT that somebody *sent* end the call. A SIGINT or SIGQUIT from the
terminal's keys has reached the command as well, which stands in the same foreground group: it is the command's to
answer, as under ``timeout --foreground``. What the caller had ignored (``nohup``, a background job) stays ignored.
"""

from __future__ import annotations

import os
import time

from deadlined.cli.exec_ending import Ending, exit_code, sentence
from deadlined.cli.exec_options import HELP, ISOLATIONS, ExecOptions, UsageError, parse
from deadlined.cli.exec_terminal import Terminal, fill_standard_descriptors
from protocol._deadlines import instant_after
from supervisor.containment.kill import SECOND_LINE_NS, kill_by_pidfd
from toolworkers import _oneshot, _signals
from toolworkers._oneshot_report import OneShot, Report

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from deadlined.cli.exec_capture import Capture

_GIVEN = "contain"
_CONFIRM_BUDGET_NS = 1_000_000_000
_NS_PER_S = 1_000_000_000
_ENDING_SIGNALS = (_signals.SIGTERM, _signals.SIGHUP, _signals.SIGINT, _signals.SIGQUIT)
_KEYS = {_signals.SIGINT: _oneshot.INTERRUPT, _signals.SIGQUIT: _oneshot.QUIT}
_COERCED_LOCALES = ("C.UTF-8", "C.utf8", "UTF-8")


class _NotStartedError(Exception):
    """The call cannot be started as asked; the report says how it is to be told."""

    def __init__(self, how: str, message: str) -> None:
        super().__init__(message)
        self.report = Report(how, message)


def main(words: list[str]) -> int:
    """`run` for a caller that did not read the clock at the start of the process."""
    return run(words, time.monotonic_ns())


def run(words: list[str], started_ns: int) -> int:
    """Run the call that the words after ``exec`` describe; returns the exit code. ``started_ns``: the clock as early as
    this process could read it; the deadline counts from there."""
    try:
        options = parse(words)
    except UsageError as error:
        _say(f"deadlined exec: {error}")
        return 2
    if options.show_help:
        _write(1, HELP.encode())
        return 0
    fill_standard_descriptors()
    try:
        return _run_call(options, started_ns)
    except Exception as error:  # noqa: BLE001  # the process boundary: a line for a person, never a traceback
        _say(f"deadlined exec: internal error: {type(error).__name__}: {error}")
        return 125


def _run_call(options: ExecOptions, started_ns: int) -> int:
    captures: list[Capture] = []
    try:
        ending = _call(options, started_ns, captures)
    except _NotStartedError as error:
        ending = Ending(error.report, started_ns, time.monotonic_ns(), options.deadline_ms)
    except OSError as error:
        report = Report("broken", f"this host has no room for the call: {error.strerror}")
        ending = Ending(report, started_ns, time.monotonic_ns(), options.deadline_ms)
    ending.wanted_isolation = options.isolation
    _tell(options, ending, captures)
    return exit_code(ending)


def _tell(options: ExecOptions, ending: Ending, captures: list[Capture]) -> None:
    """The result object, or the captured output and a sentence."""
    if options.json:
        from deadlined.cli.exec_result import result_line

        _write(1, result_line(ending, captures))
        return
    if captures:
        from deadlined.cli.exec_capture import show

        show(captures)
    if said := sentence(ending):
        _say(f"deadlined: {said}")


def _call(options: ExecOptions, started_ns: int, captures: list[Capture]) -> Ending:
    """Start the call and see it end. ``captures`` is filled with what was captured."""
    _judge_isolation(options)
    call = _describe(options, started_ns, captures)
    held = _hold_signals()
    terminal = Terminal()
    started = _start(call)
    for capture in captures:
        os.close(capture.write_end)
    vigil = Vigil(started, call.deadline_ns, call.term_grace_ns, held)
    vigil.keep()
    ending = vigil.ending(started_ns, options.deadline_ms)
    ending.output_limit = call.output_limit
    if ending.was_killed:
        terminal.restore()
    if captures:
        _drain(ending, captures)
    return ending


def _judge_isolation(options: ExecOptions) -> None:
    """``contain`` is what there is: weaker is refused, because this build has no kill for it; stronger is a wish (the
    result says it was not met), unless it is demanded."""
    if ISOLATIONS.index(options.isolation) < ISOLATIONS.index(_GIVEN):
        raise _NotStartedError(
            "refused", f"--isolation {options.isolation}: this build can only give {_GIVEN!r} so far"
        )
    demanded = options.min_isolation or "none"
    if ISOLATIONS.index(demanded) > ISOLATIONS.index(_GIVEN):
        raise _NotStartedError("refused", f"--min-isolation {demanded}: this build can only give {_GIVEN!r} so far")


def _describe(options: ExecOptions, started_ns: int, captures: list[Capture]) -> OneShot:
    """The call for pid 1, and what of it can fail on this side. The working directory becomes ours: it is inherited."""
    environment = _environment(options)
    stdin = None
    try:
        if options.stdin not in (None, "-"):
            stdin = os.open(options.stdin, os.O_RDONLY | os.O_CLOEXEC)
        if options.cwd is not None:
            os.chdir(options.cwd)
    except OSError as error:
        raise _NotStartedError("bad_option", f"{error.filename}: {error.strerror}") from error
    limit = 0
    if options.json or options.max_output is not None:
        from deadlined.cli.exec_capture import DEFAULT_LIMIT, open_captures

        captures += open_captures(in_one=options.json)
        limit = options.max_output or DEFAULT_LIMIT
    return OneShot(
        options.command,
        environment,
        instant_after(started_ns, options.deadline_ms),
        options.term_grace_ms * 1_000_000,
        stdin,
        [(capture.targets, capture.read_end, capture.write_end, capture.raw) for capture in captures],
        limit,
        usage=options.json,
    )


def _environment(options: ExecOptions) -> dict[str, str]:
    inherited = dict(os.environ)
    if inherited.get("LC_CTYPE") in _COERCED_LOCALES and b"LC_CTYPE=" not in _original_environment():
        del inherited["LC_CTYPE"]  # Python set it for itself in a C locale (PEP 538); the caller did not
    passed = dict(options.environment)
    if not options.clean_env:
        return inherited | passed
    from toolworkers._world import command_environment

    home = inherited.get("HOME", "/")
    return command_environment(inherited.get("TMPDIR", "/tmp"), home, passed, inherited)  # noqa: S108  # POSIX's default


def _original_environment() -> bytes:
    try:
        with open("/proc/self/environ", "rb") as file:
            return b"\0" + file.read()
    except OSError:
        return b"LC_CTYPE="


def _hold_signals() -> list[int]:
    """Keep what ends the call pending, from before the fork on: nothing may end us between the fork and the watch."""
    held = [number for number in _ENDING_SIGNALS if not _signals.is_ignored(number)]
    _signals.set_default(_signals.SIGCHLD)  # a caller that ignores it would have the kernel reap pid 1 for us, unseen
    held.append(_signals.SIGCHLD)
    _signals.block(held)
    return held


def _start(call: OneShot) -> _oneshot.Started:
    try:
        return _oneshot.start(call)
    except _oneshot.Refused as refusal:
        raise _NotStartedError("refused", _explain(str(refusal))) from refusal


def _explain(refused: str) -> str:
    from deadlined.cli.exec_refusal import why_no_namespaces

    return why_no_namespaces(refused, os.getuid() == 0)


def _drain(ending: Ending, captures: list[Capture]) -> None:
    from deadlined.cli.exec_capture import drain

    if drain(captures, ending.output_limit - ending.report.dropped) and ending.report.how == "exited":
        ending.report.how = "output_limit"  # over the cap is over the cap, whoever was faster


class Vigil:
    """The watch over a started call: the second line, signals from outside, and the wait for the kernel's word."""

    def __init__(self, started: _oneshot.Started, deadline_ns: int, grace_ns: int, held: list[int]) -> None:
        self._started, self._deadline_ns, self._grace_ns, self._held = started, deadline_ns, grace_ns, held
        self._kill_ns = deadline_ns
        self._shot_ns = 0
        self._cancelled_by = 0
        self._confirmed_ns: int | None = None
        self._pid_status = 0

    def keep(self) -> None:
        """Return when the kernel has shown the end of every process, or the confirm budget is spent."""
        while not self._gone():
            limit = self._shot_ns + _CONFIRM_BUDGET_NS if self._shot_ns else self._kill_ns + SECOND_LINE_NS
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

            ending.survivors = survivors()
        return ending

    def _gone(self) -> bool:
        """Pid 1 can be reaped only after everything in its namespace is dead and reaped (pid_namespaces(7))."""
        pid, self._pid_status = os.waitpid(self._started.pid, os.WNOHANG)
        if pid == 0:
            return False
        self._confirmed_ns = time.monotonic_ns()
        return True

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
        if report is None:
            report = self._own_report()
        elif report.how == "refused":
            report.message = _explain(report.message)
        elif report.how == "broken":
            report.message = f"internal error in the call's first process: {report.message}"
        return report

    def _own_report(self) -> Report:
        if not self._shot_ns:
            how = os.waitstatus_to_exitcode(self._pid_status)
            return Report("broken", f"the call's first process was ended from outside ({how}), and the call with it")
        report = Report("cancelled" if self._cancelled_by else "deadline")
        report.due_ns, report.signalled_ns = self._kill_ns, self._shot_ns
        return report


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except BlockingIOError:
        return b""


def _say(text: str) -> None:
    """One line for a person."""
    _write(2, (text.replace("\n", " ") + "\n").encode(errors="backslashreplace"))


def _write(descriptor: int, data: bytes) -> None:
    """All of it, or as much as anybody wants to read."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return
