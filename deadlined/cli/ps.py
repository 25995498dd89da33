"""``deadlined ps``: who works, on what, and for how much longer."""

from __future__ import annotations

import click

from deadlined.cli._columns import print_columns
from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._session import open_client
from protocol._client_messages import ProcessRow
from protocol._quantities import say_duration, say_size

HEADINGS = ("worker", "slot", "pid", "state", "call", "tool", "left", "processes", "memory", "cpu")


@click.command("ps")
@client_options
def ps_command(socket_path: str | None, as_json: bool) -> None:
    """List workers and the calls they serve, queued calls too, with the time left to each deadline.

    \b
    Example:
      deadlined ps
    """
    with open_client(socket_path) as client:
        rows = client.processes()
    if as_json:
        print_json({"rows": rows})
    else:
        print_columns(HEADINGS, [cells(row) for row in rows])


def cells(row: ProcessRow) -> tuple[str, ...]:
    """A row under HEADINGS."""
    return (
        _or_dash(row.worker),
        _or_dash(row.slot),
        _or_dash(row.pid),
        row.state,
        _or_dash(row.call),
        _or_dash(row.tool),
        _left(row),
        _or_dash(row.processes),
        "-" if row.rss_bytes is None else say_size(row.rss_bytes),
        "-" if row.cpu_ms is None else say_duration(row.cpu_ms),
    )


def _left(row: ProcessRow) -> str:
    """Until when it holds its slot: to the deadline, or, killed, until it is dead."""
    if row.state == "quarantined":
        return "until dead"
    return "-" if row.remaining_ms is None else say_duration(row.remaining_ms)


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
