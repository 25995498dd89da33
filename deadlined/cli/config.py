"""``deadlined config``: is a file good, and what holds in the running daemon."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from deadlined.cli._columns import print_columns
from deadlined.cli._options import client_options, json_option
from deadlined.cli._report import print_json
from deadlined.cli._session import open_client

BAD_FILE = 1


@click.group("config")
def config_command() -> None:
    """Check a configuration file, or show the configuration in force.

    \b
    Example:
      deadlined config check deadlined.toml
    """


@config_command.command("check")
@click.argument("file")
@json_option
def check_command(file: str, as_json: bool) -> int:
    """Read FILE as the daemon would: exit 0 good, 1 bad (where, and what is allowed).

    \b
    Example:
      deadlined config check deadlined.toml
    """
    wrong = _wrong_with(file)
    if as_json:
        print_json({"file": file, "ok": wrong is None, "error": wrong})
    elif wrong is None:
        click.echo(f"{file}: good")
    else:
        click.echo(wrong if wrong.startswith(file) else f"{file}: {wrong}", err=True)
    return 0 if wrong is None else BAD_FILE


@config_command.command("show")
@client_options
def show_command(socket_path: str | None, as_json: bool) -> None:
    """Every value that holds in the running daemon, and where it comes from.

    \b
    Example:
      deadlined config show --json
    """
    with open_client(socket_path) as client:
        config = client.config()
    if as_json:
        print_json({"values": config.values, "sources": config.sources})
    else:
        rows = [(key, value, config.sources.get(key, "default")) for key, value in _flat(config.values)]
        print_columns(("key", "value", "from"), rows)


def _wrong_with(file: str) -> str | None:
    from supervisor.config import ConfigError, load

    try:
        load(file)
    except (ConfigError, OSError) as error:
        return str(error)
    return None


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((prefix + key, msgspec.json.encode(value).decode()))
    return rows
