"""``deadlined models check``: what a provider of models keeps to. No daemon is needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec

from deadlined.cli._columns import print_columns
from deadlined.cli._options import json_option
from deadlined.cli._report import print_json

if TYPE_CHECKING:
    from supervisor.models.checking import Check

UNFIT = 1


@click.group("models")
def models_command() -> None:
    """Try out the model that an agent would talk to.

    \b
    Example:
      deadlined models check --model openai:gpt-4.1
    """


@models_command.command("check")
@click.option(
    "--model",
    metavar="M",
    help="scripted:FILE, openai:NAME, openai-responses:NAME, anthropic:NAME; else LLM_MODEL.",
)
@click.option("--skip", metavar="CHECK", multiple=True, help="Leave a check out; may be repeated.")
@json_option
def check_command(model: str | None, skip: tuple[str, ...], as_json: bool) -> int:
    """Ask a model what an agent will ask of it, and say what fits: exit 0 everything, 1 not everything.

    It costs some hundred tokens; the check "context" sends two million words, which are to be refused.

    \b
    Examples:
      deadlined models check --model openai:gpt-4.1 --skip context
      LLM_BASE_URL=http://127.0.0.1:8080/v1 LLM_MODEL=qwen3 deadlined models check --json
    """
    found = _checked(model, skip)
    fits = all(one.result != "failed" for one in found)
    if as_json:
        print_json({"model": model or os.environ.get("LLM_MODEL"), "ok": fits, "checks": msgspec.to_builtins(found)})
    else:
        print_columns(("check", "result", ""), [(one.name, one.result, one.detail) for one in found])
    return 0 if fits else UNFIT


def _checked(model: str | None, skip: tuple[str, ...]) -> list[Check]:
    import trio

    from supervisor.models import checking
    from supervisor.models.choosing import GatewayError

    if unknown := set(skip) - set(checking.NAMES):
        raise click.UsageError(f"no check is called {sorted(unknown)[0]}; allowed: {', '.join(checking.NAMES)}")
    try:
        return trio.run(checking.check, model, os.environ, skip)
    except GatewayError as error:
        raise click.UsageError(error.text) from error
