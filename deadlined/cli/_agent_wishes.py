"""What somebody types who wants a task done: the model's name, and all of it together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import click

from deadlined._run_words import RunOptions

_SCRIPTED = "scripted:"


class Wanted(NamedTuple):
    """``model`` None: the one that the environment of whoever steers names."""

    task: str
    model: str | None
    constraints: Sequence[str]
    plan: bool
    options: RunOptions


class Model(click.ParamType[str]):
    """``openai:NAME`` and so on. A script is named by its whole path, because the daemon's directory is another."""

    name = "model"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same name, as the daemon understands it."""
        path = value.removeprefix(_SCRIPTED)
        return value if path in (value, "") else _SCRIPTED + os.path.abspath(path)
