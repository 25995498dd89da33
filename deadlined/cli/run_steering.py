"""``deadlined run step|resume|charge|evidence|finish``: what goes on in a run, and what the daemon says to it."""

from __future__ import annotations

from collections.abc import Callable

import click
import msgspec

from deadlined.cli._options import client_options
from deadlined.cli._report import print_json, print_whole
from deadlined.cli._run_report import budget_line, print_stop, step_line, unless_stopped
from deadlined.cli._screen import printable
from deadlined.cli._session import complete_runs, open_client
from deadlined.cli.call import read_arguments
from deadlined.runs import Run
from protocol._checks import FieldValue
from protocol._client_messages import FinishRefused
from protocol._runs import RunView, StopRecord

NOT_YET = 75
"""EX_TEMPFAIL of sysexits.h, as of ``deadlined result``: not done, and it goes on. No run exits by it."""
_OF_A_MODEL = ("model_calls", "tokens_in", "tokens_out", "tokens_total", "cost_micros")
_TOKENS = click.IntRange(min=0)


@click.command("step")
@click.argument("run", shell_complete=complete_runs)
@client_options
def step_command(run: str, socket_path: str | None, as_json: bool) -> int:
    """Begin a round of RUN: one decision, and the calls it leads to. Exits as the run ended when it may not go on.

    \b
    Example:
      deadlined run step r_1a2b3c
    """

    return _say_view(run, socket_path, as_json, lambda steered: steered.step())


@click.command("resume")
@click.argument("run", shell_complete=complete_runs)
@click.option("--answer", metavar="T", default="", help="What the person said; it goes into the log.")
@client_options
def resume_command(run: str, answer: str, socket_path: str | None, as_json: bool) -> int:
    """Let RUN go on that needs input. One that waits for an approval goes on by `approve` or `reject`.

    \b
    Example:
      deadlined run resume r_1a2b3c --answer 'order number 4711'
    """

    return _say_view(run, socket_path, as_json, lambda steered: steered.resume(answer))


@click.command("charge")
@click.argument("run", shell_complete=complete_runs)
@click.option("--model", metavar="M", default="", help="Its name, for its price.")
@click.option("--in", "tokens_in", type=_TOKENS, metavar="N", help="Tokens that it read; else what was reserved.")
@click.option("--out", "tokens_out", type=_TOKENS, metavar="N", help="Tokens that it wrote; else what was reserved.")
@click.option("--cached-in", type=_TOKENS, metavar="N", default=0, help="How many of those read came from a cache.")
@click.option("--max-in", type=_TOKENS, metavar="N", help="What to reserve; else as --in.")
@click.option("--max-out", type=_TOKENS, metavar="N", help="What to reserve; else as --out.")
@client_options
def charge_command(
    run: str,
    model: str,
    tokens_in: int | None,
    tokens_out: int | None,
    cached_in: int,
    max_in: int | None,
    max_out: int | None,
    socket_path: str | None,
    as_json: bool,
) -> int:
    """Charge a model call to RUN: reserved and settled at once. Exits as the run ended when it may not go on.

    \b
    Example:
      deadlined run charge r_1a2b3c --model m --in 700 --out 90
    """

    def act() -> int:
        steered = client.attach_run(run)
        most_in, most_out = _either(max_in, tokens_in), _either(max_out, tokens_out)
        with steered.model(model, max_in=most_in, max_out=most_out) as call:
            call.usage(tokens_in=tokens_in, tokens_out=tokens_out, cached_in=cached_in)
        view = steered.view()
        if as_json:
            print_json(view)
        else:
            click.echo(budget_line(view, _OF_A_MODEL))
        return 0

    with open_client(socket_path) as client:
        return unless_stopped(as_json, act)


@click.command("evidence")
@click.argument("run", shell_complete=complete_runs)
@click.argument("name")
@client_options
def evidence_command(run: str, name: str, socket_path: str | None, as_json: bool) -> int:
    """Tell RUN that NAME was found; prints ``new`` or ``known``. Only what is new is progress.

    \b
    Example:
      deadlined run evidence r_1a2b3c doc-17
    """

    def act() -> int:
        novel = client.attach_run(run).evidence(name)
        if as_json:
            print_json({"run": run, "evidence": name, "novel": novel})
        else:
            click.echo("new" if novel else "known")
        return 0

    with open_client(socket_path) as client:
        return unless_stopped(as_json, act)


@click.command("finish")
@click.argument("run", shell_complete=complete_runs)
@click.option("--answer", metavar="T", default="", help="What was found.")
@click.option(
    "--fields", metavar="JSON|@FILE|-", help='Single facts of it: {"NAME": {"value": "T", "evidence": ["c_1a2b3c"]}}.'
)
@client_options
def finish_command(run: str, answer: str, fields: str | None, socket_path: str | None, as_json: bool) -> int:
    """Ask for RUN's end: its checks run now, under what is left of its deadline.

    Exits 0 completed; 75 the checks refuse it, their words are printed and the run goes on; 4 a person must confirm it;
    else as the run ended.

    \b
    Example:
      deadlined run finish r_1a2b3c --answer 'mended in parser.py'
    """
    facts = _read_fields(fields)
    with open_client(socket_path) as client:
        end = client.attach_run(run).finish(answer, facts)
    return print_end(end, as_json)


def print_end(end: StopRecord | FinishRefused, as_json: bool) -> int:
    """What a finish has come to; returns the exit code of that."""
    if not isinstance(end, FinishRefused):
        return print_stop(end, as_json)
    if as_json:
        print_json({"run": end.run, "finished": False, "refusals": end.refusals, "feedback": end.feedback})
    else:
        print_whole(end.feedback)
        click.echo(printable(f"{end.run} is not done ({end.refusals}. refusal); it goes on"), err=True)
    return NOT_YET


def _read_fields(given: str | None) -> dict[str, FieldValue]:
    text = read_arguments(given)
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, FieldValue])
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"--fields does not fit: {error}") from error


def _either(reserve: int | None, used: int | None) -> int:
    return used or 0 if reserve is None else reserve


def _say_view(run: str, socket_path: str | None, as_json: bool, ask: Callable[[Run], RunView]) -> int:
    """What the run is after ``ask``; its exit code. One that may not go on says why instead."""

    def act() -> int:
        view = ask(client.attach_run(run))
        if as_json:
            print_json(view)
        else:
            click.echo(step_line(view))
        return 0

    with open_client(socket_path) as client:
        return unless_stopped(as_json, act)
