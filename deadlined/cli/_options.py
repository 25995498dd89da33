"""Options that several commands share, and how a duration typed by a person is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from protocol._errors import QuantityError
from protocol._quantities import DURATION_FORM, parse_duration_ms

Command = TypeVar("Command", bound=Callable[..., Any])


class Duration(click.ParamType[int]):
    """Milliseconds out of ``250ms``, ``5s``, ``2m``, ``1h``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises click.BadParameter that says what is allowed."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(value)
        except QuantityError as error:
            self.fail(str(error), param, ctx)


def client_options(command: Command) -> Command:
    """``--socket`` and ``--json``, which every command that talks to a daemon has."""
    return socket_option(json_option(command))


def json_option(command: Command) -> Command:
    """``--json``, which every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object (a line each for streams).")(
        command
    )


def socket_option(command: Command) -> Command:
    """``--socket``, else the environment, else the default place."""
    return click.option(
        "--socket",
        "socket_path",
        metavar="P",
        help="The daemon's socket; else DEADLINED_SOCKET, else the default place.",
    )(command)


def deadline_option(command: Command) -> Command:
    """``--deadline``."""
    return click.option(
        "--deadline", "deadline_ms", type=Duration(), metavar="D", help=f"When to kill it: {DURATION_FORM}."
    )(command)
