"""A run in the daemon, steered by a blocking client.

Owns the words of the Python interface. What answers mean is ``_run_words``'s, the wire ``_conversation``'s. Nothing
here has a time limit of its own: a run that may not go on is answered when its calls have ended, and its deadline
sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Unpack

from deadlined._arguments import Arguments, SubmitOptions
from deadlined._conversation import Exchange
from deadlined._errors import DeadlinedError, RunStopped
from deadlined._run_words import Going, ModelUsage, finish_message, finished, going_on, has_ended, must_cancel
from protocol import _client_messages as cm
from protocol._checks import FieldValue
from protocol._events import Event
from protocol._outcomes import CallResult
from protocol._runs import ProviderReason, RunView, StopRecord

if TYPE_CHECKING:
    from deadlined.client import CallHandle, Client

LEAVING_S = 10.0
"""How long a block that is left waits for its run's confirmed end."""


class ModelCall:
    """A model call that was reserved; ``usage`` says what it came to."""

    def __init__(self, reserved: cm.ModelReserved) -> None:
        self.remaining_ms = reserved.remaining_ms
        """How long the model may take, from the reservation."""
        self._usage = ModelUsage()

    def usage(
        self, *, tokens_in: int | None = None, tokens_out: int | None = None, cached_in: int | None = None
    ) -> None:
        """What the model reports, as totals of this call; the last report of each counts. Charged when the block ends.
        Without any, what was reserved stays spent."""
        self._usage.report(tokens_in, tokens_out, cached_in)

    def settle_message(self, reserved: cm.ModelReserved) -> cm.SettleModel:
        """What ends it, without its number; the block says it."""
        return self._usage.settle_message(reserved)


class Run:
    """A run by its id. Its methods raise RunStopped once it does not run any more, except those that run tools: these
    answer by a result (status ``not_executed``, reason ``run_settled``)."""

    def __init__(self, client: Client, run: str) -> None:
        self.id = run
        self.stop: StopRecord | None = None
        """Why it stopped, once that was heard here; asks nobody."""
        self._client = client

    def step(self) -> RunView:
        """A new round begins: one decision and the calls it leads to. A call without an open step begins one."""
        return self._going_on(cm.StepRun(id=0, run=self.id), cm.RunState).run

    @contextmanager
    def model(self, model: str = "", *, max_in: int = 0, max_out: int = 0) -> Iterator[ModelCall]:
        """Ask a model inside the block: it is charged before, for ``max_in`` and ``max_out`` tokens, and settled when
        the block ends, by whatever way, to what ``usage`` was told.

        Raises RunStopped at its begin, or at its end if the run was stopped meanwhile and the block raised nothing.
        """
        reserved = self._going_on(
            cm.ReserveModel(id=0, run=self.id, model=model, max_in=max_in, max_out=max_out), cm.ModelReserved
        )
        call = ModelCall(reserved)
        try:
            yield call
        except BaseException:
            self._settle_quietly(call.settle_message(reserved))
            raise
        self._going_on(call.settle_message(reserved), cm.RunState)

    def call(self, tool: str, arguments: Arguments | None = None, **options: Unpack[SubmitOptions]) -> CallResult:
        """Run ``tool`` in this run, as ``Client.call`` does. Never raises RunStopped."""
        options["run"] = self.id
        return self._client.call(tool, arguments, **options)

    def submit(
        self, tool: str, arguments: Arguments | None = None, *, detach: bool = False, **options: Unpack[SubmitOptions]
    ) -> CallHandle:
        """Start ``tool`` in this run, as ``Client.submit`` does. A detached call ends with its run too."""
        options["run"] = self.id
        return self._client.submit(tool, arguments, detach=detach, **options)

    def evidence(self, name: str) -> bool:
        """Something was found, by a name of yours; True: this run had never seen it, and only that is progress."""
        return self._going_on(cm.AddEvidence(id=0, run=self.id, evidence=name), cm.EvidenceTaken).novel

    def finish(
        self, answer: str = "", fields: Mapping[str, FieldValue | str] | None = None
    ) -> StopRecord | cm.FinishRefused:
        """Ask for the end: the checks run in the daemon, under the run's deadline. FinishRefused: they said no, and
        why (``feedback``); the run goes on. A StopRecord may say something else than ``completed``; its outcome is
        ``suspended`` where a person must confirm. ``fields``: single facts of the answer, and what each rests on."""
        end = finished(self._heard(finish_message(self.id, answer, fields)))
        if isinstance(end, StopRecord):
            self.stop = end
        return end

    def resume(self, answer: str = "") -> RunView:
        """Let a run go on that needs input; ``answer`` is what a person said. Raises RequestRefused for any other."""
        return self._going_on(cm.ResumeRun(id=0, run=self.id, answer=answer), cm.RunState).run

    def retry_model(self, *, delay_ms: int = 0, detail: str = "") -> RunView:
        """The model could not be asked, and is asked again after ``delay_ms``: a retry is charged now, and the wait is
        yours. ``detail``: what it said, in a line."""
        return self._going_on(cm.RetryModel(id=0, run=self.id, delay_ms=delay_ms, detail=detail), cm.RunState).run

    def keep_notes(self, notes: str) -> None:
        """What you need to go on with the run, in words of your own: with a suspension they are on the disk."""
        self._going_on(cm.KeepNotes(id=0, run=self.id, notes=notes), cm.RunState)

    def notes(self) -> str:
        """What was kept last; nothing of a run that has settled."""
        return self._client._ask(cm.ReadNotes(id=0, run=self.id), cm.RunNotes).notes

    def ask_person(self, question: str) -> StopRecord:
        """Only a person can say what is missing: the run is suspended (``needs_input``) until ``resume``."""
        return self._stopped(cm.AskPerson(id=0, run=self.id, question=question))

    def stop_for(self, reason: ProviderReason, detail: str = "") -> StopRecord:
        """Your model fails, and you cannot go on: the run settles ``provider_failed``."""
        return self._stopped(cm.StopRun(id=0, run=self.id, reason=reason, detail=detail))

    def cancel(self) -> StopRecord:
        """End the run and every call of it; returns when they have ended. One that had stopped stays as it is."""
        return self._stopped(cm.CancelRun(id=0, run=self.id))

    def wait(self) -> StopRecord:
        """The stop record, when the run does not run any more; a suspended one counts. Interrupted, the run goes on."""
        return self._stopped(cm.WaitRun(id=0, run=self.id))

    def view(self) -> RunView:
        """The run as it stands."""
        view = self._client._ask(cm.ShowRun(id=0, run=self.id), cm.RunState).run
        self.stop = view.stop
        return view

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """Its committed events; with ``follow`` also what happens from then on, until it has settled. Raises
        RequestRefused when a run is to be followed that is not known here (any more)."""
        goes_on = follow and not has_ended(self.view().stop)  # nothing follows the end: it would be waited for for ever
        return self._client.events(after=after, run=self.id, follow=goes_on)

    def _going_on(self, request: cm.Request, kind: type[Going]) -> Going:
        try:
            return going_on(self._heard(request), kind)
        except RunStopped as stopped:
            self.stop = stopped.stop
            raise

    def _settle_quietly(self, request: cm.SettleModel) -> None:
        """Something else is being raised: that the run was stopped meanwhile, or the daemon lost, comes after it."""
        with suppress(DeadlinedError):
            self._going_on(request, cm.RunState)

    def _stopped(self, request: cm.CancelRun | cm.WaitRun | cm.AskPerson | cm.StopRun) -> StopRecord:
        self.stop = self._heard(request).outcome(cm.RunSettled).stop
        return self.stop

    def _heard(self, request: cm.Request) -> Exchange:
        exchange = self._client._line.ask(request)
        self._client._line.wait_until(lambda: exchange.over, None)
        return exchange

    def _leave(self, keep: bool, failed: bool) -> None:
        """The block that it was opened for ends (`_run_words`, rule 2); bounded: the daemon goes on without us."""
        if has_ended(self.stop) or not must_cancel(self.view(), keep, failed):
            return
        exchange = self._client._line.ask(cm.CancelRun(id=0, run=self.id))
        if self._client._line.wait_until(lambda: exchange.over, LEAVING_S):
            self.stop = exchange.outcome(cm.RunSettled).stop


@contextmanager
def open_block(opening: Callable[[], Run], keep: bool) -> Iterator[Run]:
    """The block of ``Client.run``."""
    run = opening()
    try:
        yield run
    except BaseException:
        with suppress(DeadlinedError):  # what the block raised says more; and a connection's end ends the run too
            run._leave(keep, failed=True)
        raise
    run._leave(keep, failed=False)
