"""``deadlined agent resume``: on with a run that the daemon steers and that has waited for a person."""

from __future__ import annotations

import click

from deadlined._errors import RequestRefused, RunStopped
from deadlined.cli._agent_report import AgentReport
from deadlined.cli._options import client_options
from deadlined.cli._run_watch import RunWatch
from deadlined.cli._session import complete_runs, open_client
from deadlined.cli._waiting import open_interrupts
from deadlined.runs import Run
from protocol._events import EventKind
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import RunStatus, RunView


@click.command("resume")
@click.argument("run", shell_complete=complete_runs)
@click.option("--answer", metavar="T", help="What the person says whom it has asked.")
@client_options
def resume_command(run: str, answer: str | None, socket_path: str | None, as_json: bool) -> int:
    """Let RUN go on that waits for an answer, or watch one that goes on; prints its answer and exits as it ended.

    One that waits for an approval goes on by itself once that is decided (deadlined approve, deadlined reject): until
    then this says what there is to decide, and exits 4.

    \b
    Example:
      deadlined agent resume r_1a2b3c --answer 'order number 4711'
    """
    report = AgentReport(as_json)
    with open_interrupts() as interrupts, open_client(socket_path) as client:
        steered = client.attach_run(run)
        view = steered.view()
        asks = _check(view, answer)
        if view.status is RunStatus.WAITING_FOR_APPROVAL and view.stop is not None:
            return report.stop(view.stop)
        after = _recall(steered, report)
        try:
            if asks:
                steered.resume(answer or "")
        except RunStopped as stopped:  # meanwhile
            return report.stop(stopped.stop)
        stop = RunWatch(client, run, report.show, lambda: interrupts.seen, after=after).to_stop()
    return report.stop(stop)


def _check(view: RunView, answer: str | None) -> bool:
    """Whether the run waits for an answer, which is there then. Raises RequestRefused, click.UsageError."""
    if view.agent is None:
        text = f"{view.run} is not steered by the daemon: whoever opened it goes on with it"
        raise RequestRefused(ErrorInfo(ErrorClass.ARGUMENT, "not_hosted", text))
    asks = view.status is RunStatus.NEEDS_INPUT and view.stop is not None
    if asks and answer is None:
        assert view.stop is not None
        raise click.UsageError(f"{view.run} asks: {view.stop.detail} Answer it with --answer TEXT")
    if answer is not None and not asks:
        raise click.UsageError(f"{view.run} waits for no answer, it is {view.status}; leave out --answer")
    return asks


def _recall(run: Run, report: AgentReport) -> int:
    """Tell the report what was seen before: all up to the last time that it waited. The number of the last of these."""
    events = list(run.events())
    waits = [number for number, event in enumerate(events) if event.kind == EventKind.RUN_SUSPENDED]
    seen = events[: waits[-1] + 1] if waits else []
    for event in seen:
        report.recall(event)
    return seen[-1].seq if seen else 0
