"""``deadlined top``: `ps` that goes on, with a key that kills."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from deadlined._errors import DaemonSilent, RequestRefused
from deadlined.cli._columns import print_columns
from deadlined.cli._keyboard import Keyboard, open_keyboard
from deadlined.cli._options import Duration, client_options
from deadlined.cli._report import outcome_line, print_json
from deadlined.cli._screen import printable
from deadlined.cli._top_view import Key, TopView, keys_in
from deadlined.cli.ps import HEADINGS, cells
from deadlined.client import Client
from protocol._client_messages import Pending
from protocol._outcomes import CallResult
from protocol._places import find_socket

if TYPE_CHECKING:
    from rich.console import RenderableType

ANSWER_TIMEOUT_S = 2.0
_NOT_NOW = (DaemonSilent, RequestRefused)
"""A daemon that is stopped, a call that was forgotten: the next look may see more."""
_HELP = "↑ ↓ select   k kill   q quit"
_AROUND = 4
"""Lines of the screen that are no rows: a title, headings, what was done last, the keys."""


@click.command("top")
@click.option("--every", "every_ms", type=Duration(), default=500, metavar="D", help="How often to look: 500ms.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N looks.")
@client_options
def top_command(every_ms: int, count: int | None, socket_path: str | None, as_json: bool) -> None:
    """Show workers and calls with the time left to their deadlines, again and again.

    \b
    Keys: up and down select a call, k kills it, q quits.

    Where stdout is no terminal, it shows them once and exits 0. With --json it prints one object a line, {"rows": […]},
    until it is interrupted, its reader has gone, or after --count.

    \b
    Example:
      deadlined top
    """
    with Client(find_socket(socket_path), name="top", answer_timeout_s=ANSWER_TIMEOUT_S) as client:
        if as_json:
            _stream(client, every_ms / 1_000, count)
        elif _can_repaint():
            _Screen(client, every_ms / 1_000, count).run()
        else:
            print_columns(HEADINGS, [cells(row) for row in client.processes()])


def _stream(client: Client, every_s: float, count: int | None) -> None:
    while count is None or count > 0:
        print_json({"rows": client.processes()})
        sys.stdout.flush()
        count = None if count is None else count - 1
        if count != 0:
            time.sleep(every_s)


def _can_repaint() -> bool:
    from rich.console import Console

    return sys.stdout.isatty() and not Console(file=sys.stdout).is_dumb_terminal


class _Screen:
    """The repainting kind: one look, one picture, then keys until it is time for the next."""

    def __init__(self, client: Client, every_s: float, count: int | None) -> None:
        self._client, self._every_s, self._count = client, every_s, count
        self._view = TopView()
        self._said = ""
        self._killing: str | None = None

    def run(self) -> None:
        """Until ``q``, or until it has looked often enough."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stdout)
        with open_keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
            looks = 0
            while self._count is None or looks < self._count:
                self._look()
                looks += 1
                until = time.monotonic() + self._every_s
                while time.monotonic() < until:
                    live.update(self._picture(console.size.height, keyboard), refresh=True)
                    for key in keys_in(keyboard.typed(until)):
                        if key is Key.QUIT:
                            return
                        self._take(key)

    def _look(self) -> None:
        try:
            self._view.update(self._client.processes())
            if self._killing is not None:
                self._tell_end(self._client.handle(self._killing).peek())
        except _NOT_NOW as error:
            self._said = str(error)

    def _tell_end(self, state: CallResult | Pending) -> None:
        if isinstance(state, CallResult):
            self._said, self._killing = outcome_line(state), None

    def _take(self, key: Key) -> None:
        match key:
            case Key.UP:
                self._view.move(-1)
            case Key.DOWN:
                self._view.move(1)
            case Key.KILL:
                self._kill()

    def _kill(self) -> None:
        if (call := self._view.selected) is None:
            self._said = "there is no call to kill"
            return
        try:
            live = self._client.handle(call).cancel()
        except _NOT_NOW as error:
            self._said = str(error)
            return
        self._killing = call
        self._said = f"killing {call}" if live else f"{call} had settled already"

    def _picture(self, height: int, keyboard: Keyboard) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        view = self._view
        table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
        for heading in HEADINGS:
            table.add_column(heading, no_wrap=True)
        for row, selected in view.lines(height - _AROUND):
            words = (Text(printable(cell)) for cell in cells(row))
            table.add_row(*words, style="reverse" if selected else "")
        title = Text(f"{_count(view.calls, 'call')}, {_count(view.workers, 'worker')}", style="bold")
        said = Text(printable(self._said), no_wrap=True, overflow="ellipsis")
        return Group(title, table, said, Text(_HELP if keyboard.there else "Ctrl-C quits", style="dim"))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
