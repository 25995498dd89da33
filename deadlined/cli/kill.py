"""``deadlined kill``: end a call, and say so only when the kernel does."""

from __future__ import annotations

import click

from deadlined.cli._options import client_options
from deadlined.cli._report import outcome_line, print_json
from deadlined.cli._screen import printable
from deadlined.cli._session import complete_calls, open_client
from deadlined.cli._waiting import wait_for

NOT_CONFIRMED = 1


@click.command("kill")
@click.argument("call", shell_complete=complete_calls)
@client_options
def kill_command(call: str, socket_path: str | None, as_json: bool) -> int:
    """End CALL now and wait until every process of it is gone; exit 0 then, 1 if that could not be confirmed.

    \b
    Example:
      deadlined kill c_1a2b3c
    """
    with open_client(socket_path) as client:
        handle = client.handle(call)
        live = handle.cancel()
        result = wait_for(handle, call, None, lambda: False)
    if as_json:
        print_json(result)
    else:
        click.echo(printable(outcome_line(result) if live else f"had settled already: {outcome_line(result)}"))
    return NOT_CONFIRMED if result.kill is not None and not result.kill.confirmed else 0
