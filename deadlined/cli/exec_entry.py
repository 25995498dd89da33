"""``exec`` as the group knows it: a name in the help and in completion. The command itself parses its own line by hand,
because it must start in milliseconds, and is reached without this module (``__main__``).
"""

from __future__ import annotations

import time

import click


@click.command(
    "exec",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def exec_command(words: tuple[str, ...]) -> int:
    """Run one command under a deadline, without a daemon."""
    from deadlined.cli.exec import run

    return run(list(words), time.monotonic_ns())
