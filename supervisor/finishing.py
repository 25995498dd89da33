"""The completion checks of a run, in their order: commands and looks at files are calls in its workspace, under its
deadline; fields are judged at once; a person is asked. The first that does not pass is the feedback.

The calls are the daemon's own: nothing of the run's budget pays for them, and no detector looks at them; each that may
change something is recorded like any other. What follows from one does not wait until the disk has its end: the end of
the run does, which stands behind it in the log. What is made of an answer is `core/completion`'s, which check comes
next the run's machine's, and the question to a person `approvals`'.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Protocol

import msgspec

from protocol._checks import FieldsCheck, FileCheck, PersonCheck
from protocol._client_messages import Submit
from protocol._deadlines import CEILING_MS, NS_PER_MS
from protocol._outcomes import CallResult, Reason, Status
from supervisor.clock import now_ns
from supervisor.core import completion
from supervisor.core import run as machine
from supervisor.core.evidence import Evidence
from supervisor.core.intake import Refusal
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun
from supervisor.runs import Runs

_FEEDBACK = 4_000
CHECK_TOOL = "shell"
_FOR_GOOD = (Reason.SANDBOX_DENIED, Reason.INVALID_ARGUMENTS)
"""Why a check was not executed that never will be: that is an answer."""
Judge = Callable[[CallResult], str | None]
"""What a call that checks says against the answer; None: nothing."""


class Start(Protocol):
    """Starts a call of the daemon's own in a run. Raises Refusal."""

    def __call__(self, run: LiveRun, submit: Submit) -> LiveCall: ...  # said above


class Confirm(Protocol):
    """Asks a person about the end of a run, with what they are shown. Raises Refusal."""

    def __call__(self, run: LiveRun, arguments: str, why: str) -> None: ...  # said above


class Finishing:
    """One per daemon."""

    def __init__(self, runs: Runs, start: Start, confirm: Confirm) -> None:
        self._runs, self._start, self._confirm = runs, start, confirm

    def check(self, run: LiveRun, number: int) -> None:
        """Begin the check of that number of a run that is asked to end, and tell its machine what comes of it."""
        finish = run.machine.finish
        assert finish is not None, "a run is checked for the sake of its finish"
        match run.spec.checks[number]:
            case FileCheck() as file:
                tool, arguments = completion.file_call(file)
                self._call(run, tool, arguments, None, lambda result: completion.judge_file(file, result))
            case FieldsCheck() as wanted:
                said = completion.judge_fields(wanted, finish.fields, run.evidence or Evidence())
                self._ended(run, said)
            case PersonCheck() as person:
                self._ask(run, person, completion.to_confirm(person, finish.answer, finish.fields))
            case command:
                self._command(run, command)

    def _command(self, run: LiveRun, command: str) -> None:
        arguments = msgspec.json.encode({"argv": shlex.split(command)}).decode()
        left_ms = max(1, run.machine.remaining_ns(now_ns()) // NS_PER_MS)
        self._call(run, CHECK_TOOL, arguments, min(left_ms, CEILING_MS), lambda result: _exited(command, result))

    def _ask(self, run: LiveRun, person: PersonCheck, arguments: str) -> None:
        try:
            self._confirm(run, arguments, person.question or completion.CONFIRM)
        except Refusal as refusal:
            self._ended(run, f"nobody can be asked to confirm the answer: {refusal}", ran=False)

    def _call(self, run: LiveRun, tool: str, arguments: str, deadline_ms: int | None, judge: Judge) -> None:
        submit = Submit(0, tool, arguments, deadline_ms=deadline_ms, run=run.id, cwd=run.spec.workspace)
        try:
            call = self._start(run, submit)
        except Refusal as refusal:
            self._ended(run, f"a check by {tool} {arguments[:200]} cannot run: {refusal}", ran=False)
            return
        self._runs.feed(run, machine.Began())
        run.in_flight[call.id] = call
        if call.result is not None:  # refused on the spot: nothing more will be told of it
            self._checked(run, judge, call.result)
        else:
            call.over = lambda result: self._checked(run, judge, result)

    def _checked(self, run: LiveRun, judge: Judge, result: CallResult) -> None:
        run.in_flight.pop(result.call, None)
        self._runs.feed(run, machine.Ended(now_ns()))
        ran = result.status is not Status.NOT_EXECUTED or result.reason in _FOR_GOOD
        self._ended(run, judge(result), ran)

    def _ended(self, run: LiveRun, feedback: str | None, ran: bool = True) -> None:
        self._runs.feed(run, machine.CheckEnded(feedback, now_ns(), ran))


def _exited(command: str, result: CallResult) -> str | None:
    if result.status is Status.OK:
        return None
    said = result.output.view or (result.error.message if result.error else "")
    return f"check {command!r}: {result.summary}\n{said[-_FEEDBACK:]}".rstrip()
