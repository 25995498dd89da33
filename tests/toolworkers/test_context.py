"""A call seen from inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolworkers._context import Context


def test_what_remains_is_whole_milliseconds_rounded_up_and_never_negative() -> None:
    now = [0]
    ctx = Context(deadline_ns=2_000_001, workdir="/w", now_ns=lambda: now[0])
    assert ctx.remaining_ms() == 3
    now[0] = 2_000_000
    assert ctx.remaining_ms() == 1
    now[0] = 5_000_000
    assert ctx.remaining_ms() == 0


def test_cancelled_is_false_until_the_worker_says_so_and_then_stays() -> None:
    ctx = Context(deadline_ns=0, workdir="/w")
    assert not ctx.cancelled
    ctx.cancel()
    ctx.cancel()
    assert ctx.cancelled


def test_a_tool_cannot_set_cancelled_or_add_attributes_by_mistake() -> None:
    ctx = Context(deadline_ns=0, workdir="/w")
    for name in ("cancelled", "deadline"):
        try:
            setattr(ctx, name, True)
        except AttributeError:
            continue
        raise AssertionError(f"{name} could be set")


def test_relative_paths_start_in_the_workdir_unless_the_call_has_a_root() -> None:
    assert Context(deadline_ns=0, workdir="/w").root == Path("/w")
    assert Context(deadline_ns=0, workdir="/w", root="/r", roots=["/x"]).root == Path("/r")
    assert Context(deadline_ns=0, workdir="/w", root="/r", roots=["/x"]).roots == (Path("/x"),)


def test_progress_reaches_the_sink_as_it_was_said() -> None:
    said: list[tuple[float | None, float | None, str | None]] = []
    ctx = Context(deadline_ns=0, workdir="/w", sink=lambda *it: said.append(it))
    ctx.progress(1, 3, "one of three")
    ctx.progress(text="soon")
    assert said == [(1, 3, "one of three"), (None, None, "soon")]


def test_progress_without_a_listener_is_nothing() -> None:
    Context(deadline_ns=0, workdir="/w").progress(1)


@pytest.mark.behaviour("M018")
def test_the_last_word_about_what_was_reached_counts() -> None:
    ctx = Context(deadline_ns=0, workdir="/w")
    assert ctx.said_fingerprint == ""
    ctx.fingerprint("page 1")
    ctx.fingerprint("page 2")
    assert ctx.said_fingerprint == "page 2"


@pytest.mark.parametrize("word", ["x" * 257, "\ud800"])
def test_a_fingerprint_that_could_not_be_told_is_refused_where_it_is_given(word: str) -> None:
    ctx = Context(deadline_ns=0, workdir="/w")
    with pytest.raises(ValueError):
        ctx.fingerprint(word)
    assert ctx.said_fingerprint == ""
