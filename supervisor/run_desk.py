"""Answers what clients ask about runs: each message to who knows, and the answer. No policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import RunReason, RunStatus, RunView, StopRecord
from supervisor.clock import now_ns
from supervisor.core import run as machine
from supervisor.core.run import State
from supervisor.core.run_wishes import MOST_ANSWER, MOST_TEXT, refuse_fields, too_long
from supervisor.live_run import LiveRun
from supervisor.rounds import WRAPPING_UP, Rounds
from supervisor.run_views import row_of, view_of
from supervisor.runs import RunRefusal, Runs

if TYPE_CHECKING:
    from supervisor.asker import Asker
    from supervisor.hosting import Hosting


class RunDesk:
    """One per daemon."""

    def __init__(self, runs: Runs, rounds: Rounds) -> None:
        self._runs, self._rounds = runs, rounds
        self._held: dict[Asker, set[LiveRun]] = {}
        self.hosting: Hosting
        """Who steers the runs that nobody else does."""

    def take(self, asker: Asker, message: cm.RunRequest) -> None:
        """Answer one message, now or when its run has come so far."""
        try:
            self._take(asker, message)
        except RunRefusal as refusal:
            self._refuse(asker, message, refusal)

    def left(self, asker: Asker) -> None:
        """An asker is gone: its runs end with it, unless they were opened to be kept."""
        for run in self._held.pop(asker, ()):
            self._let_go(run)
        for run in self._runs.going_on():
            for asked in [key for key in run.watchers if key[0] is asker]:
                del run.watchers[asked]
                self._runs.refusers.pop(asked, None)

    def _hold(self, asker: Asker, run: LiveRun) -> None:
        if asker in self._held:
            self._held[asker] = {held for held in self._held[asker] if not held.settled} | {run}
        else:  # it left while the disk took the run
            self._let_go(run)

    def _let_go(self, run: LiveRun) -> None:
        """One that waits for a person goes on waiting: whoever goes away has decided nothing."""
        if not (run.settled or run.approvals or run.machine.state is State.SUSPENDED):
            text = "its client disconnected"
            self._runs.stop(run, RunStatus.CANCELLED, RunReason.DISCONNECT, text, ends_calls=True)

    def _take(self, asker: Asker, message: cm.RunRequest) -> None:
        match message:
            case cm.OpenRun():
                self._open(asker, message)
            case cm.ShowRun():
                asker.say(cm.RunState(message.id, self._view(self._runs.find(message.run, asker.uid))))
            case cm.ListRuns():
                now = now_ns()
                rows = [row_of(run, now) for run in self._runs.listed(asker.uid, message.all)]
                asker.say(cm.Runs(message.id, rows[:_LISTED]))
            case cm.WaitRun():
                run = self._runs.find(message.run, asker.uid)
                self._tell_stop(asker, message.id, run, suspended_counts=not message.settled)
            case cm.CancelRun():
                self._cancel(asker, message)
            case cm.FinishRun():
                self._finish(asker, message)
            case cm.ReadNotes():
                asker.say(cm.RunNotes(message.id, message.run, self._runs.find(message.run, asker.uid).notes))
            case cm.ResumeRun():
                run = self._runs.find(message.run, asker.uid)
                self._answer(asker, message.id, run, self._runs.resume(run, message.answer))
            case _:
                run = self._runs.running(message.run, asker.uid)
                self._runs.notice_time(run)
                self._report(asker, message, run)

    def _report(
        self,
        asker: Asker,
        message: cm.Report,
        run: LiveRun,
    ) -> None:
        match message:
            case cm.StepRun():
                self._answer(asker, message.id, run, self._rounds.step(run))
            case cm.ReserveModel():
                reserved = self._rounds.reserve_model(run, message.model, message.max_in, message.max_out)
                if reserved is None:
                    self._stopped(asker, message.id, run)
                else:
                    wraps_up = run.machine.state is State.WRAPPING
                    asker.say(cm.ModelReserved(message.id, run.id, *reserved, wraps_up=wraps_up))
            case cm.SettleModel():
                self._rounds.settle_model(
                    run, message.reservation, message.tokens_in, message.tokens_out, message.cached_in
                )
                self._answer(asker, message.id, run, goes_on=not run.settled)
            case cm.RetryModel():
                self._answer(asker, message.id, run, self._rounds.retry_model(run, message))
            case cm.RefuseCall():
                self._answer(asker, message.id, run, self._rounds.refuse_call(run, message))
            case cm.AskPerson():
                self._rounds.ask_person(run, message.question)
                self._tell_stop(asker, message.id, run)
            case cm.StopRun():
                self._give_up(asker, run, message)
            case cm.KeepNotes():
                self._rounds.keep_notes(run, message)
                self._answer(asker, message.id, run, goes_on=True)
            case cm.AddEvidence():
                novel = self._rounds.evidence(run, message.evidence)
                asker.say(cm.EvidenceTaken(message.id, run.id, novel))

    def _give_up(self, asker: Asker, run: LiveRun, ask: cm.StopRun) -> None:
        """Whoever steers it cannot go on. Where a budget was used up already, that is what is told."""
        if (objection := too_long("detail", ask.detail, MOST_TEXT)) is not None:
            raise RunRefusal("invalid_arguments", objection)
        reason = RunReason(ask.reason)
        self._runs.stop(run, RunStatus.PROVIDER_FAILED, reason, ask.detail, ends_calls=True)
        self._tell_stop(asker, ask.id, run)

    def _open(self, asker: Asker, ask: cm.OpenRun) -> None:
        gateway = None if ask.agent is None else self.hosting.prepare(ask.agent, asker.uid)
        self._held.setdefault(asker, set())

        def told(run: LiveRun) -> None:
            run.opener = asker
            if run.spec.on_disconnect == "cancel":
                self._hold(asker, run)
            asker.say(cm.RunOpened(ask.id, self._view(run)))
            if gateway is not None:
                self.hosting.host(run, gateway)

        def lost() -> None:
            asker.say(_failed(ask.id, "store_unavailable", "the journal takes nothing; the run was not opened"))

        self._runs.open(ask, asker.uid, told, lost)

    def _cancel(self, asker: Asker, ask: cm.CancelRun) -> None:
        run = self._runs.find(ask.run, asker.uid)
        reason = RunReason.CLIENT if run.opener is asker else RunReason.OPERATOR
        if not run.settled:
            self._runs.stop(run, RunStatus.CANCELLED, reason, "it was cancelled on request", ends_calls=True)
        self._tell_stop(asker, ask.id, run, suspended_counts=False)

    def _finish(self, asker: Asker, ask: cm.FinishRun) -> None:
        run = self._runs.find(ask.run, asker.uid)
        if run.settled or run.machine.state is State.SUSPENDED:
            self._tell_stop(asker, ask.id, run)
            return
        _refuse_more(run)
        objection = too_long("the answer", ask.answer, MOST_ANSWER) or refuse_fields(ask.fields)
        if objection is not None:
            raise RunRefusal("invalid_arguments", objection)
        asked = (asker, ask.id)
        run.finishers.append(asked)
        self._runs.refusers[asked] = lambda feedback, refusals: asker.say(
            cm.FinishRefused(ask.id, run.id, refusals, feedback)
        )
        self._tell_stop(asker, ask.id, run)
        self._rounds.close_step(run)
        self._runs.feed(run, machine.FinishAsked(ask.answer, now_ns(), ask.plain, ask.fields))

    def _answer(self, asker: Asker, request: int, run: LiveRun, goes_on: bool) -> None:
        if goes_on:
            asker.say(cm.RunState(request, self._view(run)))
        else:
            self._stopped(asker, request, run)

    def _stopped(self, asker: Asker, request: int, run: LiveRun) -> None:
        """What was asked for is not done, because the run stops for it."""
        if run.machine.state is State.WRAPPING:
            asker.say(_failed(request, "wrapping_up", WRAPPING_UP))
        else:
            self._tell_stop(asker, request, run)

    def _tell_stop(self, asker: Asker, request: int, run: LiveRun, suspended_counts: bool = True) -> None:
        def told(stop: StopRecord) -> None:
            self._runs.refusers.pop((asker, request), None)
            if stop.resumable and not suspended_counts:
                run.watchers[asker, request] = told
            else:
                asker.say(cm.RunSettled(request, stop))

        stop = run.stop
        if stop is not None and stop.resumable and run.settled:
            stop = None  # it waited, and has ended since: that is told when the disk has it
        if stop is not None and (suspended_counts or not stop.resumable):
            told(stop)
        else:
            _refuse_more(run)
            run.watchers[asker, request] = told

    def _refuse(self, asker: Asker, message: cm.RunRequest, refusal: RunRefusal) -> None:
        """A run that has settled answers by its stop, where the request may be answered so."""
        if refusal.code == "run_settled" and isinstance(message, _STOPPABLE):
            self._tell_stop(asker, message.id, self._runs.find(message.run, asker.uid))
        else:
            asker.say(_failed(message.id, refusal.code, str(refusal)))

    def _view(self, run: LiveRun) -> RunView:
        return view_of(run, self._runs.ledger, now_ns())


_LISTED = 500
_WAITS = 1_024
"""Requests that may wait for one run to stop."""
_STOPPABLE = (
    cm.StepRun,
    cm.ReserveModel,
    cm.SettleModel,
    cm.RetryModel,
    cm.RefuseCall,
    cm.AskPerson,
    cm.StopRun,
    cm.KeepNotes,
    cm.AddEvidence,
)


def _refuse_more(run: LiveRun) -> None:
    if len(run.watchers) >= _WAITS:
        raise RunRefusal("overloaded", f"{_WAITS} requests wait for run {run.id} to stop already")


def _failed(request: int, code: str, text: str) -> cm.Failed:
    error_class = ErrorClass.OVERLOADED if code in ("store_unavailable", "overloaded") else ErrorClass.ARGUMENT
    return cm.Failed(request, ErrorInfo(error_class, code, text))
