"""``deadlined demo``: what the product does, on the programs of this machine."""

from __future__ import annotations

import click

from deadlined.cli._options import json_option


@click.command("demo")
@json_option
def demo_command(as_json: bool) -> int:
    """Run good, failing, hung and hostile calls on real programs against a private daemon, and show each receipt.

    Ends with the number of processes that are left, counted from the outside; exit 1 on any surprise.

    \b
    Example:
      deadlined demo
    """
    from deadlined.demo import run

    return run(as_json)
