"""``deadlined kill``: end a call or a run, and say so only when the kernel does."""

from __future__ import annotations

import click

from deadlined.cli._options import client_options
from deadlined.cli._report import outcome_line, print_json
from deadlined.cli._run_report import print_stop
from deadlined.cli._screen import printable
from deadlined.cli._session import complete_calls, complete_runs, open_client
from deadlined.cli._waiting import wait_for
from protocol._outcomes import CallResult, Status

NOT_CONFIRMED = 1
RUN_ID = "r_"
"""How the ids of runs begin; those of calls do not."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [*complete_calls(ctx, param, incomplete), *complete_runs(ctx, param, incomplete)]


@click.command("kill")
@click.argument("call", metavar="CALL|RUN", shell_complete=_complete)
@client_options
def kill_command(call: str, socket_path: str | None, as_json: bool) -> int:
    """End CALL, or RUN with all its calls, now; exit 0 when every process is gone, 1 if that could not be confirmed.

    \b
    Example:
      deadlined kill c_1a2b3c
    """
    with open_client(socket_path) as client:
        if call.startswith(RUN_ID):
            print_stop(client.attach_run(call).cancel(), as_json)
            return 0
        handle = client.handle(call)
        live = handle.cancel()
        result = wait_for(handle, call, None, lambda: False)
    if as_json:
        print_json(result)
    else:
        click.echo(printable(outcome_line(result) if live else _settled(result)))
    return NOT_CONFIRMED if result.kill is not None and not result.kill.confirmed else 0


def _settled(result: CallResult) -> str:
    """Of a call that ran no more. One about which a person was asked never runs: what is ended is the question."""
    asked = result.approval if result.status is Status.WAITING_FOR_APPROVAL else None
    void = f"; {asked} is void now, unless it was decided before" if asked else ""
    return f"had settled already: {outcome_line(result)}{void}"
