"""What comes of a run whose end a person has confirmed: it is done, or a check behind that one refuses its finish."""

from __future__ import annotations

from deadlined.runs import Run
from protocol._client_messages import FinishRefused
from protocol._events import Event, EventKind
from protocol._runs import StopRecord


def end_of(run: Run, approval: str) -> StopRecord | FinishRefused:
    """Wait for what follows on ``approval``, as the log has it. Interrupted, the run goes on.

    Raises RequestRefused when the run is not known any more.
    """
    confirmed = False
    for event in run.events(follow=True):
        confirmed = confirmed or _is_used(event, approval)
        if confirmed and event.kind == EventKind.FINISH_REFUSED:
            return FinishRefused(0, run.id, event.data["refusals"], event.data["text"])
        if confirmed and event.kind == EventKind.RUN_SUSPENDED and (stop := run.view().stop) is not None:
            return stop  # it waits for another person; one that was answered meanwhile has gone on
    return run.wait()


def _is_used(event: Event, approval: str) -> bool:
    return event.kind == EventKind.APPROVAL_CONSUMED and event.data["approval"] == approval
