"""``shell``: one program with its arguments. No shell reads them; a pipeline is a job for ``script``."""

from __future__ import annotations

from toolworkers._plans import CommandPlan
from toolworkers._tools import command


@command(approval="never", home="user", failure_is_feedback=True, repeat_after_unknown="allow", roles={"cwd": "path"})
def shell(
    argv: list[str], cwd: str | None = None, stdin: str | None = None, env: dict[str, str] | None = None
) -> CommandPlan:
    """Run a program with exactly these arguments, without a shell: no globs, pipes, redirects or variables.

    ``cwd``: relative to where the call runs. ``stdin``: its whole text; absent, /dev/null. ``env``: added variables.
    """
    return CommandPlan(argv, cwd, env or {}, stdin)
