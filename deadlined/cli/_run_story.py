"""What happens in a run that somebody watches, a line or two for each event that says something to a person. No I/O.

Everything comes out of the log's events alone, so a run reads the same whoever steers it and whenever it is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from deadlined.cli._run_report import used_words
from protocol._budgets import DimensionView
from protocol._checks import Check, say_check
from protocol._events import Event, EventKind
from protocol._quantities import say_duration

_ARGUMENTS, _TEXT = 100, 240
_TOLD_APART = frozenset({"steps", "wall_ms"})
"""Limits that a step's line names anyway."""


class Story:
    """One run's. Its events are to be told in their order, from the first."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._used: Counter[str] = Counter()
        self._calls: dict[str | None, str] = {}
        """Tools of the calls that somebody decided on and that have not ended."""
        self._remaining_ms = self._as_of_ms = 0
        self._tell: dict[str, Callable[[Event, dict[str, Any]], str]] = {
            EventKind.RUN_ADMITTED: self._admitted,
            EventKind.STEP_BEGUN: self._step,
            EventKind.CALL_VALIDATED: self._begun,
            EventKind.CALL_REFUSED: lambda _, told: f"  {told['tool']}: not done ({told['reason']}): {told['text']}",
            EventKind.CALL_ENDED: self._ended,
            EventKind.RETRY_SCHEDULED: self._retry,
            EventKind.DETECTOR_FIRED: lambda _, told: f"  {told['detector']}: {told['level']} ({told['count']} so far)",
            EventKind.BUDGET_REFUSED: lambda _, told: f"  budget: {told['text']}",
            EventKind.APPROVAL_ASKED: lambda _, told: (
                f"  {told['tool']}: waits for a person ({told['approval']}): {told['reason']}"
            ),
            EventKind.APPROVAL_DECIDED: self._decided,
            EventKind.FINISH_REFUSED: lambda _, told: f"  the end is refused ({told['refusals']}): {told['text']}",
            EventKind.KILL_UNCONFIRMED: lambda event, _: f"  the end of {event.call} is NOT confirmed",
            EventKind.RUN_RESUMED: self._resumed,
        }

    def lines(self, event: Event) -> list[str]:
        """What is to be said of an event; often nothing."""
        self._used.update(event.data.get("charge") or {})
        tell = self._tell.get(event.kind)
        said = "" if tell is None else tell(event, event.data)
        return [_cut(said, _TEXT)] if said else []

    def _admitted(self, event: Event, told: dict[str, Any]) -> str:
        self._limits = dict(told["limits"])
        self._remaining_ms, self._as_of_ms = told["deadline_ms"], event.at_ms
        checks = [f"done when: {say_check(msgspec.convert(check, Check))}" for check in told["checks"]]
        return " · ".join([str(event.run), f"profile {told['profile']}", self._left(event), *checks])

    def _step(self, event: Event, told: dict[str, Any]) -> str:
        most = self._limits.get("steps")
        step = f"step {told['step']}" + ("" if most is None else f" of {most}")
        return " · ".join([step, self._left(event), *self._budgets()])

    def _left(self, event: Event) -> str:
        return f"{say_duration(max(0, self._remaining_ms - (event.at_ms - self._as_of_ms)))} left"

    def _budgets(self) -> list[str]:
        limits = {name: limit for name, limit in self._limits.items() if name not in _TOLD_APART}
        used = {name: self._used[name] for name in limits}
        views = {name: DimensionView(limits[name], used[name], 0, max(0, limits[name] - used[name])) for name in limits}
        return [f"{name} {used_words(view)}" for name, view in views.items()]

    def _begun(self, event: Event, told: dict[str, Any]) -> str:
        self._calls[event.call] = told["tool"]
        return f"  {told['tool']} {_cut(told.get('arguments') or '', _ARGUMENTS)}".rstrip()

    def _ended(self, event: Event, told: dict[str, Any]) -> str:
        tool = self._calls.pop(event.call, None)
        if tool is None:  # a check's, or one that waits for a person: what comes of it is told by itself
            return ""
        reason = f" ({told['reason']})" if told["reason"] else ""
        return f"    {tool}: {told['status']}{reason} after {say_duration(told['duration_ms'])}"

    def _retry(self, event: Event, told: dict[str, Any]) -> str:
        what = told.get("tool") or "the model"
        return f"  {what} again in {say_duration(told['delay_ms'])}: {told.get('text') or told['class']}"

    def _decided(self, _event: Event, told: dict[str, Any]) -> str:
        note = f": {told['note']}" if told.get("note") else ""
        return f"  {told['approval']}: {told['decision']}{note}"

    def _resumed(self, event: Event, told: dict[str, Any]) -> str:
        self._remaining_ms, self._as_of_ms = told["remaining_ms"], event.at_ms
        answer = f": {told['answer']}" if told.get("answer") else ""
        return f"it goes on{answer} · {self._left(event)}"


def _cut(text: str, most: int) -> str:
    start = text[: len(text) - len(text.lstrip(" "))]
    flat = start + " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
