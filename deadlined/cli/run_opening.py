"""``deadlined run open``: begin a run."""

from __future__ import annotations

import click

from deadlined._run_words import RunOptions
from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._run_options import opened, run_options
from deadlined.cli._session import complete_runs, open_client


@click.command("open")
@click.option("--goal", metavar="T", default="", help="What it is for, in a sentence.")
@run_options
@click.option("--parent", metavar="R", shell_complete=complete_runs, help="The run whose budget this one is part of.")
@client_options
def open_command(goal: str, wanted: RunOptions, parent: str | None, socket_path: str | None, as_json: bool) -> int:
    """Begin a run and print its id. It is kept when this command ends; its deadline counts from now.

    \b
    Example:
      deadlined run open --profile edit --deadline 8m --limit steps=25 --check 'pytest -q' --workspace .
    """
    wanted["goal"], wanted["parent"] = goal, parent
    with open_client(socket_path) as client:
        run = opened(lambda: client.open_run(**wanted))
        if as_json:
            print_json(run.view())
        else:
            click.echo(run.id)
    return 0
