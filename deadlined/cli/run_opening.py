"""``deadlined run open``: begin a run, and what a limit typed by a person means."""

from __future__ import annotations

import click

from deadlined._errors import RequestRefused
from deadlined.cli._check_options import check_options
from deadlined.cli._options import Duration, client_options
from deadlined.cli._report import print_json
from deadlined.cli._session import complete_runs, open_client
from protocol._budgets import LimitError, read_limit
from protocol._checks import Check
from protocol._outcomes import ErrorClass
from protocol._quantities import DURATION_FORM


class Limit(click.ParamType[tuple[str, int | None]]):
    """``steps=25``, ``tool_calls[search]=3``, ``output_bytes=8MiB``, ``wall_ms=8m``, ``retries=none``."""

    name = "limit"

    def convert(
        self, value: str | tuple[str, int | None], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | None]:
        """Raises click.BadParameter that says what is allowed."""
        if isinstance(value, tuple):
            return value
        try:
            return read_limit(value)
        except LimitError as error:
            self.fail(str(error), param, ctx)


@click.command("open")
@click.option("--goal", metavar="T", default="", help="What it is for, in a sentence.")
@click.option("--profile", metavar="P", help="Whose limits and detectors hold; else the tenant's.")
@click.option(
    "--deadline", "deadline_ms", type=Duration(), metavar="D", help=f"For the whole run, fixed once: {DURATION_FORM}."
)
@click.option("--limit", "limits", type=Limit(), multiple=True, metavar="NAME=N", help="Tighter than the profile's.")
@check_options
@click.option("--session", metavar="S", help="Runs of one session add up what they use.")
@click.option("--parent", metavar="R", shell_complete=complete_runs, help="The run whose budget this one is part of.")
@click.option("--workspace", metavar="D", type=click.Path(readable=False), help="Where its calls and checks run.")
@client_options
def open_command(
    goal: str,
    profile: str | None,
    deadline_ms: int | None,
    limits: tuple[tuple[str, int | None], ...],
    checks: list[Check],
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
                checks=checks,
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
