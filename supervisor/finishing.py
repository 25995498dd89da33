"""The completion checks of a run: its commands, one after the other, in its workspace, under its deadline. The first
that does not exit 0 is the feedback. They are the daemon's own calls: nothing of the run's budget pays for them, and no
detector looks at them; each is recorded like any other call that may change something."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import msgspec

from protocol._client_messages import Submit
from protocol._outcomes import CallResult, Status
from supervisor.clock import now_ns
from supervisor.core import run as machine
from supervisor.core.intake import Refusal
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun
from supervisor.runs import Runs

_FEEDBACK = 4_000
CHECK_TOOL = "shell"


class Finishing:
    """``start(run, submit)`` starts a call of the daemon's own in a run; raises Refusal."""

    def __init__(self, runs: Runs, start: Callable[[LiveRun, Submit], LiveCall]) -> None:
        self._runs, self._start = runs, start

    def check(self, run: LiveRun) -> None:
        """Run all checks of a run, and tell its machine."""
        self._check(run, 0)

    def _check(self, run: LiveRun, number: int) -> None:
        if run.machine.state is not machine.State.CHECKING:
            return  # it was ended while a check ran, however that one ended
        if number == len(run.spec.checks):
            self._runs.feed(run, machine.ChecksEnded(None, now_ns()))
            return
        command = run.spec.checks[number]
        arguments = msgspec.json.encode({"argv": shlex.split(command)}).decode()
        left_ms = max(1, run.machine.remaining_ns(now_ns()) // 1_000_000)
        submit = Submit(0, CHECK_TOOL, arguments, deadline_ms=left_ms, run=run.id, cwd=run.spec.workspace)
        try:
            call = self._start(run, submit)
        except Refusal as refusal:
            feedback = f"check {command!r} cannot run: {refusal}"
            self._runs.feed(run, machine.ChecksEnded(feedback, now_ns(), ran=False))
            return
        self._runs.feed(run, machine.Began())
        run.in_flight[call.id] = call
        if call.result is not None:  # refused on the spot: nothing more will be told of it
            self._checked(run, number, call.result)
        else:
            call.watchers[self, number] = lambda result: self._checked(run, number, result)

    def _checked(self, run: LiveRun, number: int, result: CallResult) -> None:
        run.in_flight.pop(result.call, None)
        self._runs.feed(run, machine.Ended(now_ns()))
        if result.status is Status.OK:
            self._check(run, number + 1)
        else:
            feedback, ran = _feedback(run.spec.checks[number], result), result.status is not Status.NOT_EXECUTED
            self._runs.feed(run, machine.ChecksEnded(feedback, now_ns(), ran))


def _feedback(command: str, result: CallResult) -> str:
    said = result.output.view or (result.error.message if result.error else "")
    return f"check {command!r}: {result.summary}\n{said[-_FEEDBACK:]}".rstrip()
