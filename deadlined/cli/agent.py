"""``deadlined agent``: a task for a model, steered by the daemon or in this process, watched until it has stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from deadlined._run_words import RunOptions
from deadlined.cli._agent_report import AgentReport
from deadlined.cli._agent_wishes import Model, Wanted
from deadlined.cli._options import client_options
from deadlined.cli._run_options import opened, run_options
from deadlined.cli._run_watch import RunWatch
from deadlined.cli._session import open_client
from deadlined.cli._waiting import open_interrupts
from deadlined.cli.agent_resume import resume_command
from deadlined.client import Client
from protocol._places import find_socket
from protocol._runs import StopRecord


class AgentCommand(click.Command):
    """With ``resume`` as its first word it is another command; a task is any other text."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of whichever command is meant."""
        if args[:1] == ["resume"]:
            return resume_command.make_context(f"{info_name} resume", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _first_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [word for word in ("resume",) if incomplete and word.startswith(incomplete)]


@click.command("agent", cls=AgentCommand)
@click.argument("task", shell_complete=_first_words)
@click.option(
    "--model", type=Model(), metavar="M", help="openai:NAME, anthropic:NAME, scripted:FILE …; else LLM_MODEL's."
)
@run_options
@click.option("--constraint", "constraints", multiple=True, metavar="T", help="A line that the model always sees.")
@click.option("--plan", is_flag=True, help="First a plan, then its steps.")
@click.option("--keep", is_flag=True, help="It goes on when this command is gone.")
@click.option("--local", is_flag=True, help="The loop runs in this process, and so does its model.")
@client_options
def agent_command(
    task: str,
    model: str | None,
    wanted: RunOptions,
    constraints: tuple[str, ...],
    plan: bool,
    keep: bool,
    local: bool,
    socket_path: str | None,
    as_json: bool,
) -> int:
    """Have a model work on TASK with the daemon's tools, under one deadline and one budget; print its answer.

    Steps are shown on stderr as they come. Exits 0 completed, 1 a tool or the model failed, 3 budget, stuck or blocked,
    4 it waits for a person, 5 cancelled, 70 internal error, 125 no daemon. Ctrl-C ends the task and its calls, and
    says what is left open; once more leaves at once. `deadlined agent resume RUN` goes on with one that waited.

    \b
    Example:
      deadlined agent 'mend the failing test' --model openai:gpt-4.1 --workspace . --check 'pytest -q'
    """
    _refuse(task, keep and local)
    wanted["on_disconnect"] = "keep" if keep else "cancel"
    wishes, report = Wanted(task, model, constraints, plan, wanted), AgentReport(as_json)
    steer = _steered_here if local else _steered_there
    with open_interrupts() as interrupts, open_client(socket_path) as client:
        stop = steer(client, find_socket(socket_path), wishes, report, lambda: interrupts.seen)
    return report.stop(stop)


def _refuse(task: str, keeps_here: bool) -> None:
    if not task.strip():
        raise click.UsageError("TASK is empty; it says in words what is to be done")
    if keeps_here:
        raise click.UsageError("--keep needs the daemon to steer the task; allowed: --keep or --local")


def _steered_there(
    client: Client, _path: str, wanted: Wanted, report: AgentReport, interrupted: Callable[[], bool]
) -> StopRecord:
    """By the daemon."""
    task, model, constraints, plan, options = wanted
    run = opened(lambda: client.agent(task, model=model, constraints=constraints, plan=plan, **options).id)
    return RunWatch(client, run, report.show, interrupted).to_stop()


def _steered_here(
    client: Client, path: str, wanted: Wanted, report: AgentReport, interrupted: Callable[[], bool]
) -> StopRecord:
    """By this process, also while it waits for a person."""
    from deadlined.cli._local_agent import LocalAgent, choose  # the whole loop, which a daemon's client does without

    agent = LocalAgent(path, wanted, choose(wanted.model))
    watch = RunWatch(client, opened(agent.start), report.show, interrupted, agent.cancel)
    while (stop := watch.to_stop()).outcome == "suspended":
        report.waits(stop)
        watch.to_resumption()
    agent.wait()
    return stop
