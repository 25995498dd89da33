"""The settings of the detectors, and the sets of them that have a name. Owns their numbers, which levels a detector
has, and which settings could never work; what is counted is `detectors`' and its parts'.

Every number is one of *prior* equivalent attempts (laps, steps): with ``warn_after = 2`` the third attempt is warned.
None: never. The sets differ where a loop that changes nothing is concerned; failures are judged alike by all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import msgspec

LONGEST_PERIOD = 5
LEAST_WINDOW = 30
MOST_WINDOW = 256


class Levels(msgspec.Struct, frozen=True):
    """From how many prior attempts on the next is warned, is not executed, ends the run."""

    warn_after: int | None = None
    block_after: int | None = None
    stop_after: int | None = None

    def at(self, count: int) -> str | None:
        """The highest level that so many prior attempts reach: ``warn``, ``block``, ``stop``."""
        if self.stop_after is not None and count >= self.stop_after:
            return "stop"
        if self.block_after is not None and count >= self.block_after:
            return "block"
        return "warn" if self.warn_after is not None and count >= self.warn_after else None


class Settings(msgspec.Struct, frozen=True):
    """One set. ``cycle`` counts laps and is named ``ping_pong`` for two calls in turn; ``no_progress`` counts steps.

    ``no_progress_action``: what its stop means: the run is ``stuck``, or waits for a person. ``window``: how many
    attempts cycles, near duplicates and the breaker look back. ``block_settles``: a block ends the run as a stop does.
    ``observe``: everything passes, and what would have fired is told.
    """

    repeat_error: Levels = Levels(2, None, 3)
    repeat_call: Levels = Levels(5, 8, 10)
    poll_no_progress: Levels = Levels(10, 20, 30)
    cycle: Levels = Levels(2, 3, 4)
    same_error: Levels = Levels(3, None, 8)
    near_duplicate: Levels = Levels(2)
    breaker: Levels = Levels(stop_after=10)
    unknown_tool: Levels = Levels(stop_after=5)
    invalid_arguments: Levels = Levels(stop_after=5)
    no_progress: Levels = Levels(stop_after=4)
    no_progress_action: Literal["stop", "ask"] = "stop"
    window: int = LEAST_WINDOW
    block_settles: bool = False
    observe: bool = False


SERVED: dict[str, tuple[str, ...]] = {
    "repeat_error": ("warn_after", "block_after", "stop_after"),
    "repeat_call": ("warn_after", "block_after", "stop_after"),
    "poll_no_progress": ("warn_after", "block_after", "stop_after"),
    "cycle": ("warn_after", "block_after", "stop_after"),
    "same_error": ("warn_after", "stop_after"),
    "near_duplicate": ("warn_after",),
    "breaker": ("stop_after",),
    "unknown_tool": ("stop_after",),
    "invalid_arguments": ("stop_after",),
    "no_progress": ("stop_after",),
}
"""The levels that each detector has. A block means nothing where no single call repeats, and a warning nothing where
the answer is one already."""

ALIASES = {"generic_repeat": "repeat_call", "global_circuit_breaker": "breaker", "ping_pong": "cycle"}
"""Other names of detectors, taken wherever a name is given."""

DEFAULT = Settings()
SETS: dict[str, Settings] = {
    "default": DEFAULT,
    "strict": msgspec.structs.replace(DEFAULT, repeat_call=Levels(2, None, 3)),
    "demo": msgspec.structs.replace(DEFAULT, no_progress=Levels(stop_after=10), block_settles=True),
    "production": msgspec.structs.replace(
        DEFAULT,
        repeat_call=Levels(10, 20, 30),
        breaker=Levels(stop_after=30),
        no_progress=Levels(stop_after=30),
    ),
    "qa_readonly": msgspec.structs.replace(DEFAULT, no_progress=Levels(stop_after=2), no_progress_action="ask"),
}
"""By name. In ``demo`` and ``production`` no_progress comes no sooner than repeat_call's last level, or one call over
and over would end before they are reached."""


def refuse_contradictions(settings: Settings) -> None:
    """Raises ValueError for a number that is none, a level that its detector has not, levels that would not come one
    after the other, and levels that the window could never show."""
    if not LEAST_WINDOW <= settings.window <= MOST_WINDOW:
        raise ValueError(
            f"window = {settings.window} is not allowed; allowed: {LEAST_WINDOW} to {MOST_WINDOW} attempts"
        )
    for name in SERVED:
        _refuse_levels(name, getattr(settings, name))
        _refuse_unreachable(name, getattr(settings, name), settings.window)


def _refuse_levels(name: str, levels: Levels) -> None:
    given = [(key, getattr(levels, key)) for key in Levels.__struct_fields__ if getattr(levels, key) is not None]
    for key, value in given:
        if key not in SERVED[name]:
            raise ValueError(f"{name}.{key} is not allowed; allowed in {name}: {', '.join(SERVED[name])}")
        least = 2 if name == "cycle" else 1  # one lap is no repetition of anything
        if value < least:
            raise ValueError(f"{name}.{key} = {value} is not allowed; allowed: at least {least}")
    for (lower, low), (higher, high) in pairwise(given):
        if low >= high:
            raise ValueError(
                f"{name}.{lower} = {low} is not below {name}.{higher} = {high};"
                " allowed: warn_after below block_after below stop_after"
            )


def _refuse_unreachable(name: str, levels: Levels, window: int) -> None:
    highest = max((value for value in msgspec.structs.astuple(levels) if value is not None), default=0)
    needed = highest * LONGEST_PERIOD if name == "cycle" else highest
    if needed > window:
        what = f"{highest} laps of {LONGEST_PERIOD} calls" if name == "cycle" else f"{highest} prior attempts"
        raise ValueError(f"window = {window} never shows the {what} of {name}; allowed: a window of at least {needed}")
