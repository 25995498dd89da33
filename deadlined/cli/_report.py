"""A call's result for people: what it said on stdout, and one line on stderr about how it ended."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from deadlined.cli._screen import for_stdout, printable
from protocol._outcomes import CallResult, KillReceipt
from protocol._quantities import say_duration


def print_json(value: Any) -> None:
    """One object on one line."""
    click.echo(msgspec.json.encode(value).decode())


def print_result(result: CallResult, as_json: bool) -> None:
    """The result object; or output and content on stdout, and on stderr what became of the call."""
    if as_json:
        print_json(result)
        return
    _print_said(result)
    if result.error is not None and result.error.message:
        click.echo(printable(f"{result.error.code}: {result.error.message}"), err=True)
    for notice in result.notices:
        click.echo(printable(f"notice ({notice.detector}): {notice.text}"), err=True)
    click.echo(printable(outcome_line(result)), err=True)


def outcome_line(result: CallResult) -> str:
    """``killed (time_budget) after 2.0 s · 3 killed 0.4 ms after it was due, all gone after 1.9 ms · c_…``"""
    reason = f" ({result.reason})" if result.reason else ""
    parts = [f"{result.status}{reason} after {say_duration(result.timing.duration_ms)}"]
    if result.exit is not None and (result.exit.code or result.exit.signal):
        parts.append(result.exit.signal or f"exit {result.exit.code}")
    if result.kill is not None:
        parts.append(kill_words(result.kill))
    if result.left_processes:
        parts.append(f"{_count(result.left_processes, 'leftover process', 'leftover processes')} ended")
    return " · ".join([*parts, result.call])


def kill_words(kill: KillReceipt) -> str:
    """The receipt in words."""
    sent = (
        f"{_count(kill.killed, 'process', 'processes')} killed {say_duration(kill.signalled_after_ms)} after it was due"
    )
    if kill.confirmed and kill.confirmed_after_ms is not None:
        return f"{sent}, all gone after {say_duration(kill.confirmed_after_ms)}"
    left = ", ".join(f"pid {one.pid} {one.command} in state {one.state}" for one in kill.survivors)
    return f"{sent}, END NOT CONFIRMED" + (f": {left}" if left else "")


def _print_said(result: CallResult) -> None:
    if result.output.view:
        print_whole(result.output.view)
    if isinstance(result.content, str):
        print_whole(result.content)
    elif result.content is not None:
        print_whole(msgspec.json.format(msgspec.json.encode(result.content)).decode())


def print_whole(text: str) -> None:
    """What somebody else wrote, on stdout. Not by click, which takes escape sequences out of what goes to a pipe: that
    must arrive as it was written."""
    sys.stdout.write(for_stdout(text if text.endswith("\n") else text + "\n"))


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
