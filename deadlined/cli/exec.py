"""``deadlined exec``: one call without a daemon, for whoever types ``timeout`` today.

Two processes: this one, and pid 1 of the call's namespace, which is itself the killer (`toolworkers/_oneshot.py`).
Owns the order of a call on this side, what of it can fail here, and what is said. Leaves the watch over the running
call to `exec_vigil`, exit codes and sentences to `exec_ending`. Nothing heavy is imported on the way (a cold
``exec -- true`` is a start of Python and little more); ``--json`` pays for its own.
"""

from __future__ import annotations

import errno
import os
import time

from deadlined.cli.exec_ending import Ending, exit_code, sentence
from deadlined.cli.exec_options import HELP, ISOLATIONS, ExecOptions, UsageError, parse
from deadlined.cli.exec_terminal import Terminal, fill_standard_descriptors, is_at_terminal
from deadlined.cli.exec_vigil import Vigil, explain, hold_signals
from protocol._deadlines import instant_after
from toolworkers import _oneshot
from toolworkers._oneshot_report import OneShot, Report
from toolworkers._programs import DEFAULT_PATH, find_program

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from deadlined.cli.exec_capture import Capture

_MOST = "contain"
"""The strongest isolation that this version can give."""
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
        report = Report("broken", f"the call could not be started: {error.strerror or error}")
        ending = Ending(report, started_ns, time.monotonic_ns(), options.deadline_ms)
    ending.wanted_isolation = options.isolation
    lost = _tell(options, ending, captures)
    if lost is None or lost.errno == errno.EPIPE:  # nobody wants to read it, and that is the reader's own affair
        return exit_code(ending)
    _say(f"deadlined exec: what came of it cannot be written: {lost.strerror}")
    return 125


def _tell(options: ExecOptions, ending: Ending, captures: list[Capture]) -> OSError | None:
    """The result object, or the captured output and a sentence. Returns why it could not be written whole."""
    if options.json:
        from deadlined.cli.exec_result import result_line

        return _write(1, result_line(ending, captures))
    lost = None
    if captures:
        from deadlined.cli.exec_capture import show

        lost = show(captures)
    if said := sentence(ending):
        _say(f"deadlined: {said}")
    return lost


def _call(options: ExecOptions, started_ns: int, captures: list[Capture]) -> Ending:
    """Start the call and see it end. ``captures`` is filled with what was captured."""
    _judge_isolation(options)
    call = _describe(options, started_ns, captures)
    if time.monotonic_ns() >= call.deadline_ns:
        raise _NotStartedError("too_late", "")
    held = hold_signals()
    terminal = Terminal()
    started = _start(call)
    for capture in captures:
        os.close(capture.write_end)
    vigil = Vigil(started, call.deadline_ns, call.term_grace_ns, held)
    vigil.keep()
    ending = vigil.ending(started_ns, options.deadline_ms)
    ending.output_limit = call.output_limit
    if started.guarded:
        ending.containment, ending.isolation = "subreaper", "limits" if call.limited else "none"
    if ending.was_killed:
        terminal.restore()
    if captures:
        _drain(ending, captures)
    return ending


def _judge_isolation(options: ExecOptions) -> None:
    """What is stronger than can be given is a wish (the result says it was not met), unless it is demanded."""
    demanded = options.min_isolation or "none"
    if ISOLATIONS.index(demanded) > ISOLATIONS.index(_MOST):
        raise _NotStartedError("refused", f"--min-isolation {demanded}: this build can only give {_MOST!r} so far")


def _holder(options: ExecOptions) -> str:
    """What is to end the call: a namespace where that is demanded or can be had, unless less is wanted."""
    wants, demands = (
        ISOLATIONS.index(word or "none") >= ISOLATIONS.index(_MOST)
        for word in (options.isolation, options.min_isolation)
    )
    return "namespace" if demands else "any" if wants else "guard"


def _describe(options: ExecOptions, started_ns: int, captures: list[Capture]) -> OneShot:
    """The call for pid 1, and what of it can fail on this side. The working directory becomes ours: it is inherited."""
    stdin = None
    try:
        if options.stdin not in (None, "-"):
            stdin = os.open(options.stdin, os.O_RDONLY | os.O_CLOEXEC)
        if options.cwd is not None:
            os.chdir(options.cwd)
    except OSError as error:
        raise _NotStartedError("bad_option", f"{error.filename}: {error.strerror}") from error
    environment = _environment(options)
    program = _find(options.command[0], environment)
    limit = 0
    if options.json or options.max_output is not None:
        from deadlined.cli.exec_capture import DEFAULT_LIMIT, open_captures

        captures += open_captures(in_one=options.json)
        limit = options.max_output or DEFAULT_LIMIT
    return OneShot(
        program,
        options.command,
        environment,
        instant_after(started_ns, options.deadline_ms),
        options.term_grace_ms * 1_000_000,
        stdin,
        [(capture.targets, capture.read_end, capture.write_end, capture.raw) for capture in captures],
        limit,
        usage=options.json,
        holder=_holder(options),
        limited="limits" in (options.isolation, options.min_isolation),
        own_group=not is_at_terminal(),
    )


def _find(word: str, environment: dict[str, str]) -> str:
    """The program, looked for on the call's PATH and from its working directory, before anything is started for it."""
    try:
        return find_program(word, environment.get("PATH", DEFAULT_PATH))
    except FileNotFoundError as error:
        raise _NotStartedError("not_found", str(error)) from error
    except PermissionError as error:
        raise _NotStartedError("cannot_run", str(error)) from error


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


def _start(call: OneShot) -> _oneshot.Started:
    try:
        return _oneshot.start(call)
    except _oneshot.Refused as refusal:
        raise _NotStartedError("refused", explain(str(refusal))) from refusal


def _drain(ending: Ending, captures: list[Capture]) -> None:
    from deadlined.cli.exec_capture import drain

    if drain(captures, ending.output_limit - ending.report.dropped) and ending.report.how == "exited":
        ending.report.how = "output_limit"  # over the cap is over the cap, whoever was faster


def _say(text: str) -> None:
    """One line for a person."""
    _write(2, (text.replace("\n", " ") + "\n").encode(errors="backslashreplace"))


def _write(descriptor: int, data: bytes) -> OSError | None:
    """All of it, or as much as goes; returns why it was not all."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        return error
    return None
