"""``deadlined serve``: the daemon, in this process."""

from __future__ import annotations

import click

from deadlined.cli._options import json_option, socket_option


@click.command("serve")
@click.option("--config", "config_path", metavar="F", help="A TOML file; without one the built-in tools are served.")
@socket_option
@json_option
def serve_command(config_path: str | None, socket_path: str | None, as_json: bool) -> int:
    """Run the daemon; prints ``ready SOCKET`` when it accepts. SIGTERM drains and stops it, a second one at once.

    Exits 0 clean, 70 something survived, 75 another daemon owns the socket.

    \b
    Example:
      deadlined serve --config deadlined.toml
    """
    from supervisor.daemon import main

    return main(config_path, socket_path, as_json)
