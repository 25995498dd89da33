"""``deadlined completion``: what a shell needs to complete our commands, options, tools and calls."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from deadlined.cli._options import json_option
from deadlined.cli._report import print_json


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion_command(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print the completion script of SHELL.

    \b
    Example:
      eval "$(deadlined completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None, "the choice above names only shells that click knows"
    script = kind(ctx.find_root().command, {}, "deadlined", "_DEADLINED_COMPLETE").source()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
