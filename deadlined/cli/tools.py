"""``deadlined tools``: what can be called."""

from __future__ import annotations

import click
import msgspec

from deadlined.cli._columns import print_columns
from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._screen import for_stdout
from deadlined.cli._session import complete_tools, open_client
from protocol._contracts import Contract, ToolDescription
from protocol._quantities import say_duration


@click.command("tools")
@click.argument("name", required=False, shell_complete=complete_tools)
@client_options
def tools_command(name: str | None, socket_path: str | None, as_json: bool) -> int:
    """List the tools this daemon serves; with NAME, one tool's contract and the JSON schema of its arguments.

    \b
    Example:
      deadlined tools shell
    """
    with open_client(socket_path) as client:
        tools = client.tools(name)
    if name is not None and not tools:
        raise click.UsageError(f"no tool is called {name!r}; see: deadlined tools")
    if as_json:
        print_json(tools[0] if name is not None else {"tools": tools})
    elif name is not None:
        _print_one(tools[0])
    else:
        rows = [(t.name, t.contract.kind, _promises(t.contract), _first_line(t.description)) for t in tools]
        print_columns(("tool", "kind", "contract", "does"), rows)
    return 0


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _promises(contract: Contract) -> str:
    words = ["read-only" if contract.read_only else "write"]
    words += [word for word in ("idempotent", "fresh", "reusable") if getattr(contract, word)]
    words += ["concurrency-safe"] if contract.concurrency_safe and not contract.read_only else []
    words += [f"resource {contract.resource}"] if contract.resource else []
    return ", ".join([*words, say_duration(contract.timeout_ms)])


def _print_one(tool: ToolDescription) -> None:
    click.echo(for_stdout(f"{tool.name}: {tool.description}\n\ncontract"))
    for field, value in msgspec.to_builtins(tool.contract).items():
        if value != getattr(Contract(), field) or field in ("read_only", "timeout_ms", "kind"):
            click.echo(for_stdout(f"  {field} = {value}"))
    click.echo("\nenvironment (names; no value is ever shown)")
    for words, names in (
        ("passed", tool.environment),
        ("named and not set", tool.unset),
        ("kept back", tool.kept_back),
    ):
        click.echo(for_stdout(f"  {words}: {', '.join(names) or 'none'}"))
    click.echo(for_stdout("\narguments\n" + msgspec.json.format(msgspec.json.encode(tool.schema)).decode()))
