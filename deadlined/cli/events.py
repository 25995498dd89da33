"""``deadlined events``: the log of what happened, as it is on the disk."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._screen import printable
from deadlined.cli._session import complete_calls, open_client
from protocol._events import Event

_SHOWN = 200
"""Characters of an event's data on a line for people."""


@click.command("events")
@click.argument("call", required=False, shell_complete=complete_calls)
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events behind this number.")
@click.option("--follow", is_flag=True, help="Go on with what happens from now on, until interrupted.")
@client_options
def events_command(call: str | None, after: int, follow: bool, socket_path: str | None, as_json: bool) -> None:
    """List the events of the daemon's log, or those of CALL: numbered without a gap, each chained to the one before.

    Only what is on the disk is shown, so a number that was seen once always means the same. With ``--json``, one object
    a line.

    \b
    Example:
      deadlined events --follow
      deadlined events c_1a2b3c
    """
    with open_client(socket_path) as client:
        for event in client.events(after=after, call=call, follow=follow):
            print_event(event, as_json)


def print_event(event: Event, as_json: bool) -> None:
    """One event, as an object or as a line."""
    if as_json:
        print_json(event)
    else:
        click.echo(_line(event))


def _line(event: Event) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at_ms / 1_000))
    words = [f"{event.seq:>6}  {at}  {event.kind:<18}", event.call or event.run or "-"]
    return printable("  ".join([*words, _told(event.data)]).rstrip())


def _told(data: dict[str, Any]) -> str:
    told = " ".join(f"{name}={_value(value)}" for name, value in data.items() if value is not None)
    return told if len(told) <= _SHOWN else told[:_SHOWN] + "…"


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False)
