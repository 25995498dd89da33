from __future__ import annotations

import msgspec
import pytest

from protocol._budgets import (
    ALIASES,
    MOST,
    MOST_LIMITS,
    WALL_CEILING_MS,
    Dimension,
    DimensionView,
    LimitError,
    code_of,
    limit_value,
    read_limit,
    read_limits,
    tool_calls_of,
    tools_named,
)
from protocol._runs import RunReason


def test_the_dimensions_are_those_that_are_published() -> None:
    assert list(Dimension) == [
        "steps",
        "model_calls",
        "tool_calls",
        "tokens_in",
        "tokens_out",
        "tokens_total",
        "cost_micros",
        "output_bytes",
        "retries",
        "branches",
        "wall_ms",
    ]


def test_limits_are_read_as_they_were_written_in_their_order() -> None:
    said = {"wall_ms": 1, "tool_calls[search]": 3, "steps": None, "branches": 0, "cost_micros": MOST}
    assert list(read_limits(said).items()) == list(said.items())


@pytest.mark.parametrize("name", list(Dimension))
def test_every_dimension_may_be_limited(name: str) -> None:
    assert read_limits({name: 7}) == {name: 7}


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"step": 1}, "'step' is no limit; allowed: steps, model_calls, tool_calls, tokens_in"),
        ({"STEPS": 1}, "'STEPS' is no limit"),
        ({"tool_calls[]": 1}, "'tool_calls[]' is no limit"),
        ({"tool_calls[a b]": 1}, "is no limit"),
        ({"tool_calls[a": 1}, "is no limit"),
        ({"tool_calls[a]\n": 1}, "is no limit"),
        ({"x" * 500: 1}, "x…"),
        (
            {"steps": -1},
            f"steps = -1 is not allowed; allowed: a whole number from 0 to {MOST}, or none (in JSON null) for no limit",
        ),
        ({"steps": MOST + 1}, "is not allowed"),
        ({"steps": True}, "steps = True is not allowed"),
        ({"steps": 2.0}, "steps = 2.0 is not allowed"),
        ({"steps": "25"}, "steps = '25' is not allowed"),
        ({"steps": float("nan")}, "steps = nan is not allowed"),
        ({"steps": float("inf")}, "steps = inf is not allowed"),
        ({"wall_ms": None}, f"wall_ms = null is not allowed; allowed: a whole number from 1 to {WALL_CEILING_MS}"),
        ({"wall_ms": 0}, "wall_ms = 0 is not allowed"),
        ({"wall_ms": 120_000_000}, "wall_ms = 120000000 is not allowed"),
        ({f"tool_calls[t{n}]": 1 for n in range(MOST_LIMITS + 1)}, f"allowed: at most {MOST_LIMITS}"),
    ],
)
def test_what_is_no_limit_is_refused_and_what_is_allowed_is_said(limits: dict[str, object], words: str) -> None:
    with pytest.raises(LimitError) as caught:
        read_limits(limits)
    assert words in str(caught.value)
    assert "allowed" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("steps=25", ("steps", 25)),
        ("steps=0", ("steps", 0)),
        ("tool_calls[search]=3", ("tool_calls[search]", 3)),
        ("wall_ms=8m", ("wall_ms", 480_000)),
        ("wall_ms=480000", ("wall_ms", 480_000)),
        ("wall_ms=8", ("wall_ms", 8)),
        ("output_bytes=64KiB", ("output_bytes", 65_536)),
        ("output_bytes=65536", ("output_bytes", 65_536)),
        ("cost_micros=none", ("cost_micros", None)),
    ],
)
def test_a_limit_may_be_typed(text: str, read: tuple[str, int | None]) -> None:
    assert read_limit(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "steps",
        "steps=",
        "=3",
        "steps=-1",
        "steps=2.0",
        "steps=8m",
        "steps=64KiB",
        "steps=²",
        "wall_ms=none",
        "wall_ms=0",
        "wall_ms=nan",
        "output_bytes=1MB",
        "output_bytes=8m",
        f"steps={MOST + 1}",
        "steps=" + "9" * 5_000,
    ],
)
def test_what_is_typed_wrongly_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(LimitError) as caught:
        read_limit(text)
    assert "allowed" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_that_is_no_limit_stays_a_text() -> None:
    assert limit_value("steps", "many") == "many"


def test_the_tools_that_have_a_limit_can_be_told() -> None:
    assert tools_named({"steps": 1, "tool_calls": 2, tool_calls_of("a.b-c_1"): None}) == ["a.b-c_1"]


@pytest.mark.behaviour("M168")
def test_a_view_says_how_much_is_used_in_percent() -> None:
    assert DimensionView(15_000, 13_500, 0, 1_500).percent == 90
    assert DimensionView(15_000, 18_000, 0, 0).percent == 120
    assert DimensionView(None, 5, 0, None).percent is None
    assert DimensionView(0, 0, 0, 0).percent is None
    assert msgspec.to_builtins(DimensionView(1, 1, 0, 0)) == {"limit": 1, "used": 1, "reserved": 0, "left": 0}


@pytest.mark.behaviour("M068")
def test_the_older_codes_are_understood_and_said() -> None:
    reasons = [RunReason.TIME_BUDGET, RunReason.MODEL_CALL_BUDGET, RunReason.TOOL_CALL_BUDGET]
    assert list(ALIASES) == ["DEADLINE_EXCEEDED", "MODEL_BUDGET_EXHAUSTED", "TOOL_BUDGET_EXHAUSTED"]
    assert list(map(RunReason, ALIASES)) == msgspec.convert(list(ALIASES), list[RunReason]) == reasons
    assert [code_of(reason) for reason in ("time_budget", "model_call_budget", "tool_call_budget")] == list(ALIASES)
    assert code_of("per_tool_budget") == "TOOL_BUDGET_EXHAUSTED"
    with pytest.raises(ValueError, match="STEP_BUDGET"):
        RunReason("STEP_BUDGET")
    assert code_of("step_budget") is None
