"""What every command that begins a run may say of it: its bounds, where it works, what must hold before it is done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click

from deadlined._errors import RequestRefused
from deadlined._run_words import RunOptions
from deadlined.cli._options import Duration
from protocol._budgets import LimitError, read_limit
from protocol._checks import Check, FieldsCheck, FileCheck, PersonCheck
from protocol._outcomes import ErrorClass
from protocol._quantities import DURATION_FORM

Given: TypeAlias = tuple[str, ...]
Opened = TypeVar("Opened")


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


_OPTIONS = (
    click.option("--profile", metavar="P", help="Whose limits and detectors hold; else the tenant's."),
    click.option(
        "--deadline", "deadline_ms", type=Duration(), metavar="D", help=f"For all of it, fixed once: {DURATION_FORM}."
    ),
    click.option(
        "--limit", "limits", type=Limit(), multiple=True, metavar="NAME=N", help="Tighter than the profile's."
    ),
    click.option(
        "--workspace",
        metavar="D",
        type=click.Path(exists=True, file_okay=False, readable=False),
        help="The directory where its calls and checks run.",
    ),
    click.option("--check", "commands", multiple=True, metavar="CMD", help="Must exit 0 before it may finish."),
    click.option(
        "--check-file", "files", multiple=True, metavar="PATH[=RE]", help="Must be there, with a line that matches RE."
    ),
    click.option(
        "--check-fields", "fields", multiple=True, metavar="A,B", help="Its answer must have them, with evidence."
    ),
    click.option(
        "--confirm", is_flag=False, flag_value="", metavar="[QUESTION]", help="A person must confirm its answer."
    ),
    click.option("--session", metavar="S", help="Runs of one session add up what they use."),
)


def run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options; what they say comes as ``wanted``."""

    @functools.wraps(command)
    def with_options(
        *,
        limits: tuple[tuple[str, int | None], ...],
        commands: Given,
        files: Given,
        fields: Given,
        confirm: str | None,
        profile: str | None,
        deadline_ms: int | None,
        workspace: str | None,
        session: str | None,
        **others: Any,
    ) -> int:
        wanted = RunOptions(
            profile=profile,
            deadline_ms=deadline_ms,
            limits=dict(limits),
            workspace=workspace,
            checks=_checks(commands, files, fields, confirm),
            session=session,
        )
        return command(wanted=wanted, **others)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def opened(opening: Callable[[], Opened]) -> Opened:
    """What opening gives. What was wrong with the words on the command line is a usage error; an id that no run has
    is none."""
    try:
        return opening()
    except RequestRefused as refused:
        if refused.error.class_ is ErrorClass.ARGUMENT and refused.error.code != "unknown_run":
            raise click.UsageError(refused.error.message) from refused
        raise


def _checks(commands: Given, files: Given, fields: Given, confirm: str | None) -> list[Check]:
    """The checks, a person's behind all others: nobody is asked about an answer that does not hold."""
    checks: list[Check] = list(commands)
    for file in files:
        path, wanted, pattern = file.partition("=")
        checks.append(FileCheck(path, matches=pattern if wanted else None))
    checks += [FieldsCheck(tuple(name.strip() for name in names.split(","))) for names in fields]
    checks += [] if confirm is None else [PersonCheck(confirm)]
    return checks
