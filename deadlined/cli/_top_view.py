"""What ``deadlined top`` shows and which call is selected, without a terminal: rows and keys in, lines out.

Rules
1. Calls come first, the one with the least time left on top; then workers without a call, by number.
2. The selection is a call and not a line: it stays on its call while others come, go and change places. When the call
   has gone, the one that has come into its line is selected.
3. ``k`` kills the selected call, once; the arrows move; ``q`` quits. Every other key is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from protocol._client_messages import ProcessRow


class Key(Enum):
    """What a person can want."""

    UP = auto()
    DOWN = auto()
    KILL = auto()
    QUIT = auto()


_KEYS = {
    b"k": Key.KILL,
    b"q": Key.QUIT,
    b"\x1b[A": Key.UP,
    b"\x1bOA": Key.UP,
    b"\x1b[B": Key.DOWN,
    b"\x1bOB": Key.DOWN,
}


def keys_in(typed: bytes) -> list[Key]:
    """The keys in what was read from a terminal. A sequence comes in one piece: terminals write it so."""
    found = []
    while typed:
        length = next((len(code) for code in _KEYS if typed.startswith(code)), 1)
        if (key := _KEYS.get(typed[:length])) is not None:
            found.append(key)
        typed = typed[length:]
    return found


class Line(NamedTuple):
    """One row on the screen."""

    row: ProcessRow
    selected: bool


class TopView:
    """The rows of the last look, and the selection. ``selected``: a call's id, None while there is no call."""

    def __init__(self) -> None:
        self.selected: str | None = None
        self._place = 0
        self._rows: list[ProcessRow] = []

    @property
    def calls(self) -> int:
        """Calls that run or wait."""
        return sum(row.call is not None for row in self._rows)

    @property
    def workers(self) -> int:
        """Workers that live."""
        return sum(row.worker is not None for row in self._rows)

    def update(self, rows: Sequence[ProcessRow]) -> None:
        """The daemon was asked again."""
        self._rows = sorted(rows, key=_order)
        self._select(self._index())

    def move(self, by: int) -> None:
        """Select the call that stands so many lines below (or above)."""
        self._select(self._index() + by)

    def lines(self, most: int) -> list[Line]:
        """As many rows as fit, the selected one among them."""
        first = min(max(0, self._place - most + 1), max(0, len(self._rows) - most))
        shown = self._rows[first : first + max(0, most)]
        return [Line(row, row.call is not None and row.call == self.selected) for row in shown]

    def _index(self) -> int:
        calls = [row.call for row in self._rows[: self.calls]]
        return calls.index(self.selected) if self.selected in calls else self._place

    def _select(self, place: int) -> None:
        self._place = max(0, min(place, self.calls - 1))
        self.selected = self._rows[self._place].call if self.calls else None


def _order(row: ProcessRow) -> tuple[bool, int, int, str]:
    left = row.remaining_ms if row.remaining_ms is not None else 0
    return row.call is None, left, row.worker or 0, row.call or ""
