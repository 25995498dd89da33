"""``deadlined run show|list|events|wait|cancel``: a run from outside."""

from __future__ import annotations

import click

from deadlined.cli._columns import print_columns
from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._run_report import print_stop, print_view
from deadlined.cli._session import complete_runs, open_client
from deadlined.cli.events import print_event
from protocol._quantities import say_duration
from protocol._runs import RunRow


@click.command("show")
@click.argument("run", shell_complete=complete_runs)
@client_options
def show_command(run: str, socket_path: str | None, as_json: bool) -> None:
    """Show RUN as it stands: what is left of each budget, what it waits for, why it stopped.

    \b
    Example:
      deadlined run show r_1a2b3c
    """
    with open_client(socket_path) as client:
        view = client.attach_run(run).view()
    if as_json:
        print_json(view)
    else:
        print_view(view)


@click.command("list")
@click.option("--all", "ended_too", is_flag=True, help="Those that have ended too.")
@client_options
def list_command(ended_too: bool, socket_path: str | None, as_json: bool) -> None:
    """List the runs that go on or are suspended, newest first.

    \b
    Example:
      deadlined run list --all
    """
    with open_client(socket_path) as client:
        rows = client.runs(all=ended_too)
    if as_json:
        print_json({"runs": rows})
    else:
        print_columns(("run", "status", "profile", "step", "calls", "left", "goal"), [_cells(row) for row in rows])


@click.command("events")
@click.argument("run", shell_complete=complete_runs)
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events behind this number.")
@click.option("--follow", is_flag=True, help="Go on with what happens from now on, until the run has settled.")
@client_options
def events_command(run: str, after: int, follow: bool, socket_path: str | None, as_json: bool) -> None:
    """List the events of RUN, as the log on the disk has them. With ``--json``, one object a line.

    \b
    Example:
      deadlined run events r_1a2b3c --follow
    """
    with open_client(socket_path) as client:
        watched, seq = client.attach_run(run), after
        for event in watched.events(after=after, follow=follow):
            print_event(event, as_json)
            seq = event.seq
        if seq == after == 0:
            watched.view()  # whose log has nothing may be nobody's: then that is said


@click.command("wait")
@click.argument("run", shell_complete=complete_runs)
@client_options
def wait_command(run: str, socket_path: str | None, as_json: bool) -> int:
    """Wait until RUN does not run any more (suspended counts), print why, and exit as it ended.

    Ctrl-C ends the wait, not the run.

    \b
    Example:
      deadlined run wait r_1a2b3c
    """
    with open_client(socket_path) as client:
        stop = client.attach_run(run).wait()
    return print_stop(stop, as_json)


@click.command("cancel")
@click.argument("run", shell_complete=complete_runs)
@client_options
def cancel_command(run: str, socket_path: str | None, as_json: bool) -> int:
    """End RUN and every call of it; exit 0 when they are gone. One that had ended stays as it was.

    \b
    Example:
      deadlined run cancel r_1a2b3c
    """
    with open_client(socket_path) as client:
        stop = client.attach_run(run).cancel()
    print_stop(stop, as_json)
    return 0


def _cells(row: RunRow) -> tuple[str, ...]:
    why = f" ({row.reason})" if row.reason else ""
    left = say_duration(row.remaining_ms)
    return (row.run, f"{row.status}{why}", row.profile, str(row.step), str(row.calls), left, row.goal or "-")
