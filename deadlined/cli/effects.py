"""``deadlined effects``: calls that may have changed something and nobody knows, until somebody has looked."""

from __future__ import annotations

import time

import click

from deadlined.cli._columns import print_columns
from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._session import complete_runs, open_client
from protocol._client_messages import Effects, ListEffects
from protocol._quantities import say_duration
from protocol._runs import OpenEffect


@click.group("effects", invoke_without_command=True)
@click.option("--run", metavar="R", shell_complete=complete_runs, help="Only this run's.")
@client_options
@click.pass_context
def effects_command(context: click.Context, run: str | None, socket_path: str | None, as_json: bool) -> None:
    """List the calls that were cut off after they had begun, oldest first: whether they did their work is unknown.

    Look for the key downstream, where the tool passed it on; then close the effect.

    \b
    Examples:
      deadlined effects
      deadlined effects close c_1a2b3c --note 'the mail was sent'
    """
    if context.invoked_subcommand is not None:
        return
    with open_client(socket_path) as client:
        found = client._ask(ListEffects(id=0, run=run), Effects)
    if as_json:
        print_json({"effects": found.effects, "more": found.more})
        return
    now_ms = time.time() * 1_000
    print_columns(("call", "tool", "run", "since", "key"), [_cells(one, now_ms) for one in found.effects])
    if found.more:
        click.echo(f"and {found.more} more: close some of these, or look at one run with --run", err=True)


@effects_command.command("close")
@click.argument("call")
@click.option("--note", metavar="T", required=True, help="What was found.")
@client_options
def close_command(call: str, note: str, socket_path: str | None, as_json: bool) -> None:
    """Say what became of CALL: it is listed no more, and no run waits for it. The note stays in the log.

    \b
    Example:
      deadlined effects close c_1a2b3c --note 'the mail was sent'
    """
    with open_client(socket_path) as client:
        effect = client.close_effect(call, note)
    if as_json:
        print_json(effect)
    else:
        click.echo(f"{effect.call}: closed")


def _cells(one: OpenEffect, now_ms: float) -> tuple[str, ...]:
    return (one.call, one.tool, one.run or "-", f"{say_duration(max(now_ms - one.since_ms, 0))} ago", one.key or "-")
