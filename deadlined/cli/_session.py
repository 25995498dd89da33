"""A client for one command, and what shell completion can learn from a daemon."""

from __future__ import annotations

from collections.abc import Callable

import click

from deadlined._errors import DeadlinedError
from deadlined.client import Client
from protocol._places import find_socket

ANSWER_TIMEOUT_S = 10.0
COMPLETION_TIMEOUT_S = 0.5


def open_client(socket_path: str | None) -> Client:
    """A connection for this command. Raises DaemonNotRunning, DaemonSilent, PlaceError."""
    return Client(find_socket(socket_path), name="command line", answer_timeout_s=ANSWER_TIMEOUT_S)


def complete_tools(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of tools for the shell; nothing where there is no daemon to ask."""
    return _asked(ctx, incomplete, lambda client: [tool.name for tool in client.tools()])


def complete_calls(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of the calls that run or wait."""
    return _asked(ctx, incomplete, lambda client: [row.call for row in client.processes() if row.call])


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of the runs that go on or are suspended."""
    return _asked(ctx, incomplete, lambda client: [row.run for row in client.runs()])


def complete_approvals(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of what waits for a person."""
    return _asked(ctx, incomplete, lambda client: [one.approval for one in client.approvals()])


def _asked(ctx: click.Context, incomplete: str, ask: Callable[[Client], list[str]]) -> list[str]:
    """Errors are silence here: a shell that completes has nowhere to show them."""
    try:
        path = find_socket(ctx.params.get("socket_path"))
        with Client(path, name="completion", answer_timeout_s=COMPLETION_TIMEOUT_S) as client:
            return [name for name in ask(client) if name.startswith(incomplete)]
    except (DeadlinedError, ValueError):
        return []
