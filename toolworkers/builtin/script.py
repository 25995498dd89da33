"""``script``: a text for one of a few interpreters. The text lies in a file of the call's TMPDIR while it runs, so
that it may be long, reads its own stdin and is named in its error messages."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from toolworkers._plans import CommandPlan
from toolworkers._tools import ToolError, command

_SUFFIX = {"sh": ".sh", "bash": ".sh", "python3": ".py", "node": ".cjs"}


@command(approval="never", home="user", failure_is_feedback=True, repeat_after_unknown="allow")
def script(
    text: str, interpreter: Literal["sh", "bash", "python3", "node"] = "sh", args: list[str] | None = None
) -> CommandPlan:
    """Run a script: the text goes to the interpreter as a file, ``args`` follow it."""
    plan = CommandPlan([interpreter, _scratch_path(_SUFFIX[interpreter]), *(args or [])])
    _write(plan.argv[1], text)
    return msgspec.structs.replace(plan, temporary=(plan.argv[1],))


def _scratch_path(suffix: str) -> str:
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"script-{os.urandom(8).hex()}{suffix}")  # noqa: S108  # a worker always has TMPDIR


def _write(path: str, text: str) -> None:
    """A new 0600 file; the runner unlinks it, and a kill takes the whole TMPDIR."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(text.encode())
    except OSError as error:
        raise ToolError(f"the script cannot be written: {error}", code="scratch_failed") from error
