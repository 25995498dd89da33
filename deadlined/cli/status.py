"""``deadlined status``: health, for people and probes."""

from __future__ import annotations

import click
import msgspec

from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._session import open_client
from protocol._client_messages import DaemonStatus
from protocol._quantities import say_duration

DEGRADED = 1


@click.command("status")
@client_options
def status_command(socket_path: str | None, as_json: bool) -> int:
    """Say whether the daemon is healthy: exit 0 healthy, 1 degraded (and why), 125 no daemon.

    \b
    Example:
      deadlined status --json
    """
    with open_client(socket_path) as client:
        status = client.status()
    if as_json:
        print_json({"healthy": not status.degraded, **_fields(status)})
    else:
        click.echo(_words(status))
    return DEGRADED if status.degraded else 0


def _fields(status: DaemonStatus) -> dict[str, object]:
    fields = msgspec.to_builtins(status)
    return {name: value for name, value in fields.items() if name not in ("op", "id")}


def _words(s: DaemonStatus) -> str:
    health = "degraded" if s.degraded else "healthy"
    lines = [
        f"{health} · version {s.version} · pid {s.pid} · up {say_duration(s.uptime_ms)}",
        f"containment {s.containment}" + "".join(f"\n  {why}" for why in s.containment_why),
        f"workers {s.workers}, idle {s.idle_workers}, replaced {s.replacements}",
        f"calls running {s.calls_in_flight}, queued {s.calls_queued}, settled {s.calls_settled}",
        f"kills {s.kills}, unconfirmed {s.unconfirmed_kills}",
    ]
    return "\n".join([*lines, *(f"degraded: {why}" for why in s.degraded)])
