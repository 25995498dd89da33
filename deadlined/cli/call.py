"""``deadlined call``: submit, wait, exit as the call did."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from deadlined.cli._options import client_options, deadline_option
from deadlined.cli._report import print_json, print_result
from deadlined.cli._session import complete_runs, complete_tools, open_client
from deadlined.cli._waiting import open_interrupts, wait_for
from deadlined.client import CallHandle
from protocol._outcomes import exit_code


@click.command("call")
@click.argument("tool", shell_complete=complete_tools)
@click.argument("arguments", metavar="[JSON|@FILE|-]", required=False)
@deadline_option
@click.option(
    "--cwd", metavar="D", type=click.Path(readable=False), help="Where it runs; else a work directory of its own."
)
@click.option("--run", metavar="R", shell_complete=complete_runs, help="The run that it is part of.")
@click.option("--key", metavar="K", help="Delivery id: the same call under the same key runs once.")
@click.option("--detach", is_flag=True, help="Print the call's id and return; the call goes on.")
@click.option("--split-streams", is_flag=True, help="Keep stdout and stderr apart (their common order is lost).")
@client_options
def call_command(
    tool: str,
    arguments: str | None,
    deadline_ms: int | None,
    cwd: str | None,
    run: str | None,
    key: str | None,
    detach: bool,
    split_streams: bool,
    socket_path: str | None,
    as_json: bool,
) -> int:
    """Run TOOL with a JSON object of arguments (given, from a file, or from stdin) and wait for its result.

    Exits 0 ok, 1 failed or crashed, 3 not executed, 5 cancelled, 124 killed at the deadline, 125 no daemon. Ctrl-C
    cancels the call and waits until it is gone.

    \b
    Examples:
      deadlined call shell '{"argv": ["git", "status", "--short"]}' --cwd . --deadline 10s
      deadlined call python @arguments.json --json
    """
    text = read_arguments(arguments)
    with open_interrupts() as interrupts, open_client(socket_path) as client:
        handle = client.submit(
            tool, text, detach=detach, deadline_ms=deadline_ms, cwd=cwd, run=run, key=key, split_streams=split_streams
        )
        if detach and handle.settled is None:
            _print_id(handle, as_json)
            return 0
        result = wait_for(handle, tool, handle.deadline_ms, lambda: interrupts.seen)
    print_result(result, as_json)
    return exit_code(result.status, result.reason)


def read_arguments(given: str | None) -> str | None:
    """The JSON text that was given, or that a file or stdin holds. Raises click.UsageError where it cannot be read."""
    try:
        if given == "-":
            return sys.stdin.buffer.read().decode()
        if given is not None and given.startswith("@"):
            return Path(given[1:]).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"the arguments in {given} are not UTF-8: {error.reason} at byte {error.start}"
        ) from error
    except (OSError, ValueError) as error:
        raise click.UsageError(f"the arguments in {given} cannot be read: {error}") from error
    return given


def _print_id(handle: CallHandle, as_json: bool) -> None:
    if as_json:
        print_json({"call": handle.call, "deadline_ms": handle.deadline_ms})
    else:
        click.echo(handle.call)
