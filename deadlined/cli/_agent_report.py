"""What somebody at a terminal sees of an agent: its steps on stderr, its answer on stdout, then why it stopped."""

from __future__ import annotations

import click

from deadlined.cli._report import print_json, print_whole
from deadlined.cli._run_report import effect_line, field_lines, left_lines
from deadlined.cli._run_story import Story
from deadlined.cli._screen import printable
from protocol._events import Event
from protocol._runs import RUN_EXIT, RunStatus, StopRecord


class AgentReport:
    """``as_json``: every event as an object on stdout, and nothing else until the stop."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._story = Story()

    def recall(self, event: Event) -> None:
        """Something that was seen before; nothing is shown of it."""
        self._story.lines(event)

    def show(self, event: Event) -> None:
        """Something that has happened now."""
        lines = self._story.lines(event)
        if self._json:
            print_json(event)
        else:
            _say(lines)

    def waits(self, stop: StopRecord) -> None:
        """It waits for a person, and this command, which steers it, for both."""
        if not self._json:
            _say([stop.text, *_to_decide(stop, "deadlined run resume"), "this waits until then; Ctrl-C ends the run"])

    def stop(self, stop: StopRecord) -> int:
        """The end of it; the exit code that it has."""
        if self._json:
            print_json(stop)
            return RUN_EXIT[stop.status]
        if stop.answer:
            print_whole(stop.answer)
        for line in field_lines(stop):
            print_whole(line)
        _say([stop.text, *_more(stop)])
        return RUN_EXIT[stop.status]


def _more(stop: StopRecord) -> list[str]:
    if stop.outcome == "suspended":
        return [*map(effect_line, stop.unresolved_effects), *waiting_lines(stop)]
    if stop.status is RunStatus.COMPLETED:
        return [effect_line(effect) for effect in stop.unresolved_effects]
    return [*left_lines(stop), f"its log: deadlined run events {stop.run}"]


def waiting_lines(stop: StopRecord) -> list[str]:
    """What a person has to do for a run that waits, and how it is watched after that."""
    todo = _to_decide(stop, "deadlined agent resume")
    if stop.status is RunStatus.NEEDS_INPUT:
        return todo
    return [*todo, f"it goes on by itself after that; to watch it: deadlined agent resume {stop.run}"]


def _to_decide(stop: StopRecord, resume: str) -> list[str]:
    if stop.status is RunStatus.NEEDS_INPUT:
        return [f"it asks: {stop.detail}", f"answer it: {resume} {stop.run} --answer TEXT"]
    todo = [f"decide: deadlined approve {one}, or: deadlined reject {one}" for one in stop.approvals]
    return todo or [f"say what became of its earlier calls: deadlined effects --run {stop.run}"]


def _say(lines: list[str]) -> None:
    """Each may hold words of a model's or a tool's: no line of those can pass for one of ours."""
    for line in lines:
        click.echo(printable(line).replace("\n", "\n  "), err=True)
