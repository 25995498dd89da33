"""``deadlined metrics``: what the daemon counts, for Prometheus or for people."""

from __future__ import annotations

import sys

import click

from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._session import open_client


@click.command("metrics")
@client_options
def metrics_command(socket_path: str | None, as_json: bool) -> None:
    """Print the daemon's metrics in the text format of Prometheus; with ``--json``, one object with every sample.

    \b
    Example:
      deadlined metrics | grep deadlined_runs_settled_total
    """
    with open_client(socket_path) as client:
        text = client.metrics()
    if as_json:
        print_json({"samples": _samples(text)})
    else:
        sys.stdout.write(text)


def _samples(text: str) -> list[dict[str, object]]:
    # Loaded here: it costs more than all the rest of this command.
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(text)
    return [
        {"name": one.name, "labels": one.labels, "value": one.value} for family in families for one in family.samples
    ]
