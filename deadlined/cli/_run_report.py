"""A run for people: how it stands, and why it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from deadlined._errors import RunStopped
from deadlined.cli._columns import print_columns
from deadlined.cli._report import print_json
from deadlined.cli._screen import printable
from protocol._budgets import DimensionView
from protocol._checks import say_check
from protocol._quantities import say_duration
from protocol._runs import RUN_EXIT, OpenEffect, RunDeadline, RunView, StopRecord

REFUSED = 3
"""What was asked for was not done: the exit of anything that would go on with a run that is completed."""
_FOUND = 5
"""How many of the last findings are shown; all are in the object."""
_HELPS = {
    "larger_budget": "what would help: a larger budget",
    "other_strategy": "what would help: another way, not the same again",
    "after_a_human": "what would help: a person's decision",
    "same": "what would help: the same again, later",
    "never": "not to be tried again without a person",
}


def print_stop(stop: StopRecord, as_json: bool) -> int:
    """The record on stdout, as an object or in a few lines; returns the exit code that the run's end has."""
    if as_json:
        print_json(stop)
    else:
        for line in stop_lines(stop):
            click.echo(printable(line))
    return RUN_EXIT[stop.status]


def unless_stopped(as_json: bool, act: Callable[[], int]) -> int:
    """What ``act`` returns; or the stop record of a run that does not run any more, and its exit code: never 0, or a
    shell's loop of steps would go on for ever behind the end."""
    try:
        return act()
    except RunStopped as stopped:
        return print_stop(stopped.stop, as_json) or REFUSED


def stop_lines(stop: StopRecord) -> list[str]:
    """``stuck (repeat_call) at step 4, tool · after 1 m 30 s of 8 m 00 s``, the sentence, what is open, what helps."""
    phase = f", {stop.phase}" if stop.phase else ""
    head = f"{stop.status} ({stop.reason}) at step {stop.step}{phase} · after {_elapsed(stop.deadline)} · {stop.run}"
    answer = [f"answer: {stop.answer}"] if stop.answer else []
    return [line for line in (head, stop.text, *answer, *field_lines(stop), *left_lines(stop)) if line]


def field_lines(stop: StopRecord) -> list[str]:
    """The fields of its answer, each with what it rests on."""
    return [f"{name}: {field.value} ({', '.join(field.evidence) or '-'})" for name, field in stop.fields.items()]


def left_lines(stop: StopRecord) -> list[str]:
    """What it has found and left, what is open, what it waits for and what would help."""
    lines = [f"found: {line}" for line in stop.partial[-_FOUND:]]
    lines += [f"left: {one.path}" for one in stop.artefacts[-_FOUND:]]
    lines += [effect_line(effect) for effect in stop.unresolved_effects]
    if stop.outcome == "suspended":
        lines += [f"waits for a decision: deadlined approve {one}, or reject {one}" for one in stop.approvals]
    return lines + ([_HELPS[stop.advice]] if stop.advice in _HELPS else [])


def effect_line(effect: OpenEffect) -> str:
    """What is open, and how it is closed."""
    return (
        f"unknown: whether {effect.call} ({effect.tool}) did its work; look for the key {effect.key or '-'}, then: "
        f"deadlined effects close {effect.call} --note TEXT"
    )


def print_view(view: RunView) -> None:
    """A run as it stands: one line, what it is, its budgets, and what it waits for."""
    click.echo(printable(f"{view.run} · {view.status} · {step_line(view)}"))
    for line in _about(view):
        click.echo(printable(line))
    shown = {name: one for name, one in view.budgets.items() if one.limit is not None or one.used or one.reserved}
    rows = [(name, *_cells(one), view.sources.get(name, "-")) for name, one in shown.items()]
    print_columns(("budget", "limit", "used", "", "reserved", "left", "from"), rows)
    for notice in view.notices:
        click.echo(printable(f"notice ({notice.detector}, {notice.level}): {notice.text}"))
    if view.stop is not None:
        print_stop(view.stop, as_json=False)


def step_line(view: RunView) -> str:
    """``step 3 of 25, decide · 6 m 30 s left``."""
    steps = view.budgets.get("steps")
    limit = f" of {steps.limit}" if steps is not None and steps.limit is not None else ""
    return f"step {view.step}{limit}, {view.phase} · {say_duration(view.deadline.remaining_ms)} left"


def budget_line(view: RunView, names: Iterable[str]) -> str:
    """``tokens_total 13500 of 15000 (90 %) · model_calls 1``: what was used of some budgets."""
    return " · ".join(f"{name} {used_words(view.budgets[name])}" for name in names if name in view.budgets)


def used_words(one: DimensionView) -> str:
    """``13500 of 15000 (90 %)``; without a limit what was used alone."""
    if one.limit is None:
        return str(one.used)
    return f"{one.used} of {one.limit} {_percent(one)}".rstrip()


def _percent(one: DimensionView) -> str:
    return "" if one.percent is None else f"({one.percent} %)"


def _about(view: RunView) -> list[str]:
    names = {"session": view.session, "parent": view.parent, "workspace": view.workspace}
    more = "".join(f" · {name} {value}" for name, value in names.items() if value)
    lines = [f"goal: {view.goal}"] if view.goal else []
    lines.append(f"profile {view.profile} · detectors {view.detectors} · tenant {view.tenant}{more}")
    lines += [f"check: {say_check(check)}" for check in view.checks]
    lines += [f"refused: {view.refused}"] if view.refused else []
    lines += [f"calls in flight: {view.calls_in_flight}"] if view.calls_in_flight else []
    return lines + [f"waits for a decision: {one}" for one in view.approvals if view.stop is None]


def _cells(one: DimensionView) -> tuple[str, ...]:
    return (_or_dash(one.limit), str(one.used), _percent(one), str(one.reserved), _or_dash(one.left))


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _elapsed(deadline: RunDeadline) -> str:
    over = f", {say_duration(deadline.overrun_ms)} over" if deadline.overrun_ms else ""
    return f"{say_duration(deadline.elapsed_ms)} of {say_duration(deadline.deadline_ms)}{over}"
