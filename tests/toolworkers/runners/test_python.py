"""In this process; what forks, crashes or hangs is in tests/contract."""

from __future__ import annotations

import io
from typing import Any

import pytest

from protocol._errors import InvalidArguments
from toolworkers._context import Context
from toolworkers._registry import CommandPlan, Tool, command, tool
from toolworkers._tools import MARK
from toolworkers.runners import _failures, python

HERE = Context(deadline_ns=0, workdir="/")
LIMIT = 64 << 20


def of(function: Any) -> Tool:
    return getattr(function, MARK)


@tool
def double(number: int) -> int:
    return 2 * number


@tool
def repeat(text: str, times: int) -> str:
    return text * times


@tool
def nothing() -> None:
    return None


@tool
def fail(text: str) -> None:
    raise ValueError(text)


@command
def listing(path: str) -> CommandPlan:
    if path == "bad":
        raise InvalidArguments("never bad")
    return CommandPlan(["ls", path])


def test_a_value_is_ok_and_none_is_no_result() -> None:
    assert python.run(3, of(double), {"number": 4}, HERE, LIMIT).content == 8
    assert python.run(3, of(double), {"number": 4}, HERE, LIMIT).how == "ok"
    assert python.run(3, of(nothing), {}, HERE, LIMIT).how == "no_result"


def test_a_value_over_the_limit_of_output_has_come_to_it_and_one_that_fits_no_frame_is_an_error() -> None:
    assert python.run(3, of(repeat), {"text": "x", "times": 1_000}, HERE, 2_000).how == "ok"
    assert python.run(3, of(repeat), {"text": "x", "times": 3_000}, HERE, 2_000).how == "output_limit"
    assert python.run(3, of(repeat), {"text": "x", "times": 3_000_000}, HERE, 2_000_000).how == "output_limit"
    ended = python.run(3, of(repeat), {"text": "x", "times": 3_000_000}, HERE, LIMIT)
    assert (ended.how, ended.error_code) == ("raised", "content")


def test_what_was_printed_over_the_limit_has_come_to_it_however_the_function_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The daemon looks every ten milliseconds; this may have been faster."""
    monkeypatch.setattr(python, "_printed", lambda: 3_000)
    assert python.run(3, of(double), {"number": 4}, HERE, 3_000).how == "ok"
    assert python.run(3, of(double), {"number": 4}, HERE, 2_999).how == "output_limit"
    assert python.run(3, of(fail), {"text": "why"}, HERE, 2_999).how == "output_limit"


def test_an_exception_is_told_and_its_place_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(_failures, "_stderr", printed)
    ended = python.run(3, of(fail), {"text": "why"}, HERE, LIMIT)
    assert (ended.how, ended.message) == ("raised", "ValueError: why")
    trace = printed.getvalue()
    assert "raise ValueError(text)" in trace
    assert "runners/python.py" not in trace


def test_a_plan_is_a_plan_or_the_end_of_the_call() -> None:
    planned = python.plan(3, of(listing), {"path": "."}, HERE)
    assert isinstance(planned, CommandPlan)
    assert planned.argv == ["ls", "."]
    ended = python.plan(3, of(listing), {"path": "bad"}, HERE)
    assert (ended.how, ended.message) == ("invalid_arguments", "never bad")
    ended = python.plan(3, of(double), {"number": 1}, HERE)
    assert (ended.how, ended.error_code) == ("raised", "content")


def test_what_was_used_only_grows() -> None:
    first = python.used()
    sum(range(300_000))
    second = python.used(first)
    assert second.cpu_ms > first.cpu_ms
    assert second.max_rss_bytes >= first.max_rss_bytes > 1 << 20


@tool(progress="self")
def look(page: str, ctx: Context) -> str:
    ctx.fingerprint(page)
    if page == "broken":
        raise ValueError("broken")
    return "seen"


@pytest.mark.behaviour("M018")
def test_what_the_tool_says_it_reached_comes_with_its_end_however_it_ends() -> None:
    def said(page: str) -> str:
        return python.run(3, of(look), {"page": page}, Context(deadline_ns=0, workdir="/"), LIMIT).fingerprint

    assert [said("a"), said(""), said("broken")] == ["a", "", "broken"]
    assert python.run(3, of(double), {"number": 4}, HERE, LIMIT).fingerprint == ""
