"""The model, the same for every peer, and who was told what when.

It asks for the payment. Told anything but that it was paid, it asks once more, as a model does that reads "timed out";
then it gives up. Peers only translate between this and their own test model.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from bench.compare.execution import who_is_at_work
from bench.compare.payment import PAID

TOOL = "pay"
GOAL = "Pay the invoice."
DONE, GIVEN_UP = "The invoice is paid.", "The payment did not go through."
_ASKS = 2
MOST_TURNS = _ASKS + 1
_SAID_CHARACTERS = 160


@dataclass(slots=True)
class Told:
    """Somebody was told how an execution went. ``left``: executions at work at that moment."""

    at_ns: int
    whom: Literal["model", "caller"]
    said: str
    left: list[str]


@dataclass(slots=True)
class Script:
    """One conversation."""

    asks: int = 0
    told: list[Told] = field(default_factory=list)

    def decide(self, heard: str = "") -> str | None:
        """The next turn: None = call the tool, else the last word. ``heard``: what the peer says of the call before; a
        line of it may be the tool's own answer."""
        if self.asks:
            self.note("model", heard)
        if self.asks and PAID in map(str.strip, heard.splitlines()):
            return DONE
        if self.asks == _ASKS:
            return GIVEN_UP
        self.asks += 1
        return None

    def note(self, whom: Literal["model", "caller"], said: str) -> None:
        """Now, ``whom`` is told."""
        self.told.append(Told(time.monotonic_ns(), whom, " ".join(said.split())[:_SAID_CHARACTERS], who_is_at_work()))
