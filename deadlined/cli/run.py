"""``deadlined run``: runs that a client, a shell script say, steers itself. One command a module beside this one."""

from __future__ import annotations

import click

from deadlined.cli.run_opening import open_command
from deadlined.cli.run_steering import charge_command, evidence_command, finish_command, resume_command, step_command
from deadlined.cli.run_watching import cancel_command, events_command, list_command, show_command, wait_command


@click.group("run")
def run_command() -> None:
    """Steer a run: one deadline and one budget over many calls, kept by the daemon.

    What may not go on prints why, and exits as the run ended: 0 completed (3 where more was asked of it), 1 a tool or a
    provider failed, 3 budget, stuck or blocked, 4 suspended, 5 cancelled, 70 internal error.

    \b
    Example:
      deadlined run open --profile edit --check 'pytest -q'
      deadlined run step r_1a2b3c && deadlined call shell '{"argv": ["make"]}' --run r_1a2b3c
      deadlined run finish r_1a2b3c --answer done
    """


for _command in (
    open_command,
    step_command,
    charge_command,
    evidence_command,
    finish_command,
    resume_command,
    show_command,
    list_command,
    events_command,
    wait_command,
    cancel_command,
):
    run_command.add_command(_command)
