"""The options that say what must hold before a run is done, for every command that begins one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import click

from protocol._checks import Check, FieldsCheck, FileCheck, PersonCheck

Given: TypeAlias = tuple[str, ...]
_OPTIONS = (
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
)


def check_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options; what they say comes as ``checks``."""

    @functools.wraps(command)
    def with_checks(
        *,
        commands: tuple[str, ...],
        files: tuple[str, ...],
        fields: tuple[str, ...],
        confirm: str | None,
        **others: Any,
    ) -> int:
        return command(checks=read_checks(commands, files, fields, confirm), **others)

    for option in reversed(_OPTIONS):
        with_checks = option(with_checks)
    return with_checks


def read_checks(commands: Given, files: Given, fields: Given, confirm: str | None) -> list[Check]:
    """The checks, a person's behind all others: nobody is asked about an answer that does not hold."""
    checks: list[Check] = list(commands)
    for file in files:
        path, wanted, pattern = file.partition("=")
        checks.append(FileCheck(path, matches=pattern if wanted else None))
    checks += [FieldsCheck(tuple(name.strip() for name in names.split(","))) for names in fields]
    checks += [] if confirm is None else [PersonCheck(confirm)]
    return checks
