"""``deadlined wait`` and ``deadlined result``: the one final record of a call, by its id."""

from __future__ import annotations

import click

from deadlined.cli._options import client_options
from deadlined.cli._report import print_json, print_result
from deadlined.cli._session import complete_calls, open_client
from deadlined.cli._waiting import wait_for
from protocol._client_messages import Pending
from protocol._outcomes import exit_code
from protocol._quantities import say_duration

NOT_YET = 75
"""EX_TEMPFAIL of sysexits.h: ask again later. No call exits by it."""


@click.command("wait")
@click.argument("call", shell_complete=complete_calls)
@client_options
def wait_command(call: str, socket_path: str | None, as_json: bool) -> int:
    """Wait until CALL has settled; print its result and exit as the call did.

    Ctrl-C ends the wait, not the call.

    \b
    Example:
      deadlined wait $(deadlined call shell '{"argv": ["make"]}' --detach)
    """
    with open_client(socket_path) as client:
        handle = client.handle(call)
        state = handle.peek()
        if isinstance(state, Pending):
            state = wait_for(handle, call, state.remaining_ms, lambda: False)
    print_result(state, as_json)
    return exit_code(state.status, state.reason)


@click.command("result")
@click.argument("call")
@client_options
def result_command(call: str, socket_path: str | None, as_json: bool) -> int:
    """Print CALL's result if it has settled, and exit as the call did; exit 75 while it runs.

    \b
    Example:
      deadlined result c_1a2b3c --json
    """
    with open_client(socket_path) as client:
        state = client.handle(call).peek()
    if not isinstance(state, Pending):
        print_result(state, as_json)
        return exit_code(state.status, state.reason)
    if as_json:
        print_json({"call": state.call, "settled": False, "remaining_ms": state.remaining_ms})
    else:
        click.echo(f"not settled yet, {say_duration(state.remaining_ms)} left", err=True)
    return NOT_YET
