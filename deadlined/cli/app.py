"""The command line's entry: which commands there are, and what every failure looks like to a person.

Commands are imported when they are asked for, so that none pays for another's imports. Every exception that a user may
cause becomes one line on stderr and an exit code here; a traceback means a bug.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from deadlined import __version__
from deadlined._errors import DeadlinedError, RequestRefused
from deadlined.cli._screen import printable
from protocol._errors import InvalidArguments
from protocol._places import PlaceError

PIPE_CLOSED, USAGE_ERROR, REFUSED, NO_DAEMON, INTERRUPTED = 1, 2, 3, 125, 130

COMMANDS = {
    "exec": ("exec_entry", "Run one command under a deadline, without a daemon."),
    "serve": ("serve", "Run the daemon."),
    "status": ("status", "Say whether the daemon is healthy."),
    "call": ("call", "Run a tool and wait for its result."),
    "wait": ("wait", "Wait for a call's result."),
    "result": ("wait", "Show a call's result if it has settled."),
    "output": ("output", "Show a call's raw output."),
    "tools": ("tools", "List the tools, their contracts and schemas."),
    "ps": ("ps", "List workers and calls with the time they have left."),
    "events": ("events", "List what happened, as the log on the disk has it."),
    "top": ("top", "Watch workers and calls; kill with a key."),
    "kill": ("kill", "End a call or a run and wait until it is gone."),
    "run": ("run", "Steer a run: one deadline and one budget over many calls."),
    "agent": ("agent", "Have a model work on a task, under one deadline and one budget."),
    "approvals": ("approvals", "List the calls that wait for a person."),
    "approve": ("approvals", "Let a call run, and wait for its result."),
    "reject": ("approvals", "Do not let a call run."),
    "effects": ("effects", "List calls of which nobody knows whether they did their work."),
    "models": ("models", "Try out a provider of models."),
    "metrics": ("metrics", "Print what the daemon counts."),
    "doctor": ("doctor", "Try what this host can contain."),
    "config": ("config", "Check a configuration, or show the one in force."),
    "demo": ("demo", "Show on real programs what the product does."),
    "completion": ("completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which is the order of learning."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"deadlined.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, says) for name, (_, says) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: deadlined exec --deadline 5s -- make test",
)
@click.version_option(__version__, prog_name="deadlined", message="%(prog)s %(version)s")
def app() -> None:
    """Tool calls that really end: at the deadline every process of the call is dead, confirmed by the kernel."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. ``argv`` without the program's name; None: the process's own."""
    _prepare_streams()
    try:
        code = app.main(args=None if argv is None else list(argv), prog_name="deadlined", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE_ERROR
    except click.ClickException as error:
        return _complain(_usage_line(error), USAGE_ERROR)
    except BrokenPipeError:
        # Python would complain about its own flush at exit; whoever closed the pipe has read enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (InvalidArguments, PlaceError) as error:
        return _complain(str(error), USAGE_ERROR)
    except RequestRefused as error:
        return _complain(str(error), REFUSED)
    except (DeadlinedError, OSError) as error:
        return _complain(str(error), NO_DAEMON)
    return code if isinstance(code, int) else 0


def _prepare_streams() -> None:
    """Whoever started us may have closed 0, 1 or 2: open each, or a socket of ours would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # what a tool wrote may not fit the terminal's encoding


def _usage_line(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "deadlined"
    where = command.removeprefix("deadlined").strip()
    return f"{where}: " * bool(where) + f"{error.format_message().rstrip('.')} (see: {command} --help)"


def _complain(text: str, code: int) -> int:
    """One line, whatever the text is made of."""
    click.echo(f"deadlined: {printable(' '.join(text.split()))}", err=True)
    return code
