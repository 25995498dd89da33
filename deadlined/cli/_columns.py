"""Rows under headings, as wide as the terminal where there is one and as wide as they are elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from deadlined.cli._screen import printable

WIDE = 500
"""A pipe has no width; nothing is to be cut for it."""


def print_columns(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout. Cells are text and never markup: tools choose their own names."""
    # Loaded here: no command without a table, and none with --json, should pay 80 ms for it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE).print(table)
