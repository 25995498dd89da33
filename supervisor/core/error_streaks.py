"""How many different calls of one tool have failed with the same error in a row. Owns that count; what is done about it
is `detectors`'.

A success of the tool, another error code, or a change of the state begins it anew. Calls of other tools do not. The
same call again adds nothing: that is a repetition, and counted as one.
"""

from __future__ import annotations

from typing import Any

import msgspec

MOST_CALLS = 256


class Streak(msgspec.Struct, array_like=True):
    """``changes``: how often the state had changed at its begin. ``calls``: their fingerprints, in order."""

    code: str
    changes: int
    calls: list[str]
    call_id: str


class ErrorStreaks:
    """Of one run, by tool."""

    def __init__(self) -> None:
        self._of: dict[str, Streak] = {}

    def before(self, tool: str, call_fp: str, changes: int) -> tuple[int, Streak | None]:
        """How many other calls have failed alike in a row, and of what."""
        streak = self._of.get(tool)
        if streak is None or streak.changes != changes:
            return 0, None
        return len(streak.calls) - (call_fp in streak.calls), streak

    def end(self, tool: str, call_fp: str, call_id: str, code: str | None, changes: int) -> None:
        """A call of the tool has ended. ``code``: its error's; None: it succeeded, "": nobody knows."""
        if code is None:
            self._of.pop(tool, None)
        elif code:
            streak = self._of.get(tool)
            if streak is None or streak.code != code or streak.changes != changes:
                streak = self._of[tool] = Streak(code, changes, [], "")
            streak.call_id = call_id
            if call_fp not in streak.calls and len(streak.calls) < MOST_CALLS:
                streak.calls.append(call_fp)

    def dump(self) -> list[Any]:
        """The state as JSON can carry it."""
        return [[tool, msgspec.to_builtins(streak)] for tool, streak in self._of.items()]

    def load(self, state: list[Any]) -> None:
        """Take over what `dump` gave."""
        self._of = {tool: msgspec.convert(streak, Streak) for tool, streak in state}
