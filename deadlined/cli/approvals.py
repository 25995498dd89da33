"""``deadlined approvals``, ``approve``, ``reject``: what waits for a person, and the person's word."""

from __future__ import annotations

import time
from typing import Literal

import click

from deadlined.cli._columns import print_columns
from deadlined.cli._confirmed import end_of
from deadlined.cli._options import client_options
from deadlined.cli._report import print_json, print_result
from deadlined.cli._screen import printable
from deadlined.cli._session import complete_approvals, complete_runs, open_client
from deadlined.cli._waiting import wait_for
from deadlined.cli.call import read_arguments
from deadlined.cli.run_steering import print_end
from deadlined.client import CallHandle
from protocol._client_messages import Decided, Pending
from protocol._outcomes import CallResult, exit_code
from protocol._quantities import say_duration
from protocol._runs import ApprovalView

_SHOWN = 120
"""Characters of a call's arguments in a table; ``--json`` has all."""


@click.command("approvals")
@click.option("--all", "decided_too", is_flag=True, help="Those that were decided too.")
@click.option("--run", metavar="R", shell_complete=complete_runs, help="Only this run's.")
@client_options
def approvals_command(decided_too: bool, run: str | None, socket_path: str | None, as_json: bool) -> None:
    """List the calls that wait for a person, oldest first, with the exact arguments that will run.

    \b
    Example:
      deadlined approvals
    """
    with open_client(socket_path) as client:
        approvals = client.approvals(run=run, all=decided_too)
    if as_json:
        print_json({"approvals": approvals})
    else:
        now_ms = time.time() * 1_000
        headings = ("approval", "state", "left", "tool", "run", "arguments", "because")
        print_columns(headings, [_cells(one, now_ms) for one in approvals])


@click.command("approve")
@click.argument("approval", metavar="ID", shell_complete=complete_approvals)
@click.option("--arguments", metavar="JSON|@FILE|-", help="Run it with these instead; they are judged anew.")
@click.option(
    "--scope",
    type=click.Choice(["call", "same_args", "tool"]),
    default="call",
    help="What else it holds for in its run: the same call again, any call of this tool.",
)
@click.option("--note", metavar="T", default="", help="Why, for the log.")
@click.option("--no-wait", is_flag=True, help="Print the call's id and return; the call goes on.")
@client_options
def approve_command(
    approval: str,
    arguments: str | None,
    scope: Literal["call", "same_args", "tool"],
    note: str,
    no_wait: bool,
    socket_path: str | None,
    as_json: bool,
) -> int:
    """Let the call that waits as ID run, wait for its result, and exit as it did. Ctrl-C ends the wait, not the call.

    Of an answer that is to be confirmed (tool finish) wait for what comes of its run, and exit as `run finish` does.

    \b
    Example:
      deadlined approve a_1a2b3c --note 'the branch is mine'
    """
    text = read_arguments(arguments)
    with open_client(socket_path) as client:
        decided = client.approve(approval, note=note, arguments=text, scope=scope)
        if no_wait:
            _print_decided(decided, decided.call, as_json)
            return 0
        if decided.call is None:  # it was the end of a run that was confirmed
            return print_end(end_of(client.attach_run(decided.approval.run or ""), approval), as_json)
        result = _result_of(client.handle(decided.call), decided.approval.tool)
    print_result(result, as_json)
    return exit_code(result.status, result.reason)


@click.command("reject")
@click.argument("approval", metavar="ID", shell_complete=complete_approvals)
@click.option("--reason", metavar="T", default="", help="Why; the run hears it.")
@click.option("--stop", is_flag=True, help="End the run, too.")
@client_options
def reject_command(approval: str, reason: str, stop: bool, socket_path: str | None, as_json: bool) -> None:
    """Do not let the call that waits as ID run. Its run hears why and goes on, unless ``--stop``.

    \b
    Example:
      deadlined reject a_1a2b3c --reason 'use the test database'
    """
    with open_client(socket_path) as client:
        decided = client.reject(approval, note=reason, then="stop" if stop else "feedback")
    _print_decided(decided, None, as_json)


def _result_of(handle: CallHandle, label: str) -> CallResult:
    state = handle.peek()
    return wait_for(handle, label, state.remaining_ms, lambda: False) if isinstance(state, Pending) else state


def _print_decided(decided: Decided, goes_on: str | None, as_json: bool) -> None:
    if as_json:
        print_json({"approval": decided.approval, "call": decided.call})
    else:
        click.echo(goes_on or f"{decided.approval.approval}: {decided.approval.state}")


def _cells(one: ApprovalView, now_ms: float) -> tuple[str, ...]:
    left = say_duration(max(one.expires_at_ms - now_ms, 0)) if one.state == "pending" else "-"
    arguments = one.arguments if len(one.arguments) <= _SHOWN else one.arguments[:_SHOWN] + "…"
    flat = printable(" ".join(arguments.split()))
    return (one.approval, one.state, left, one.tool, one.run or "-", flat, one.reason)
