"""``deadlined run open``: begin a run, and what a limit typed by a person means."""

from __future__ import annotations

import re

import click

from deadlined._errors import RequestRefused
from deadlined.cli._options import Duration, client_options
from deadlined.cli._report import print_json
from deadlined.cli._session import complete_runs, open_client
from protocol._errors import QuantityError
from protocol._outcomes import ErrorClass
from protocol._quantities import DURATION_FORM, parse_duration_ms, parse_size_bytes

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
LIMIT_FORM = "NAME=NUMBER, such as steps=25, tool_calls[search]=3, output_bytes=8MiB, wall_ms=5m"
_WITH_UNITS = {"wall_ms": parse_duration_ms, "output_bytes": parse_size_bytes}


class Limit(click.ParamType[tuple[str, int]]):
    """``steps=25``, ``tool_calls[search]=3``, ``output_bytes=8MiB``, ``wall_ms=8m``. Which names there are is the
    daemon's to say."""

    name = "limit"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Raises click.BadParameter that says what is allowed."""
        if isinstance(value, tuple):
            return value
        name, _, amount = value.rpartition("=")
        number = _amount(name, amount)
        if not name or number is None:
            self.fail(f"{value!r} is no limit; allowed is {LIMIT_FORM}", param, ctx)
        return name, number


def _amount(name: str, text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return _WITH_UNITS[name](text)
    except (KeyError, QuantityError):
        return None


@click.command("open")
@click.option("--goal", metavar="T", default="", help="What it is for, in a sentence.")
@click.option("--profile", metavar="P", default="default", help="Whose limits and detectors hold.")
@click.option(
    "--deadline", "deadline_ms", type=Duration(), metavar="D", help=f"For the whole run, fixed once: {DURATION_FORM}."
)
@click.option("--limit", "limits", type=Limit(), multiple=True, metavar="NAME=N", help="Tighter than the profile's.")
@click.option("--check", "checks", multiple=True, metavar="CMD", help="Must exit 0 before it may finish.")
@click.option("--session", metavar="S", help="Runs of one session add up what they use.")
@click.option("--parent", metavar="R", shell_complete=complete_runs, help="The run whose budget this one is part of.")
@click.option("--workspace", metavar="D", type=click.Path(readable=False), help="Where its calls and checks run.")
@client_options
def open_command(
    goal: str,
    profile: str,
    deadline_ms: int | None,
    limits: tuple[tuple[str, int], ...],
    checks: tuple[str, ...],
    session: str | None,
    parent: str | None,
    workspace: str | None,
    socket_path: str | None,
    as_json: bool,
) -> int:
    """Begin a run and print its id. It is kept when this command ends; its deadline counts from now.

    \b
    Example:
      deadlined run open --profile edit --deadline 8m --limit steps=25 --check 'pytest -q' --workspace .
    """
    with open_client(socket_path) as client:
        try:
            run = client.open_run(
                goal=goal,
                profile=profile,
                deadline_ms=deadline_ms,
                limits=dict(limits),
                checks=list(checks),
                session=session,
                parent=parent,
                workspace=workspace,
            )
        except RequestRefused as refused:
            if refused.error.class_ is ErrorClass.ARGUMENT and refused.error.code != "unknown_run":
                raise click.UsageError(refused.error.message) from refused
            raise
        if as_json:
            print_json(run.view())
        else:
            click.echo(run.id)
    return 0
