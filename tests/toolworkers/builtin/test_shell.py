"""``shell``: exactly these arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol import InvalidArguments
from toolworkers._plans import CommandPlan

Call = Callable[..., Any]


def test_the_arguments_are_the_plan(call: Call) -> None:
    assert call("shell", argv=["ls", "$HOME; *"]) == CommandPlan(["ls", "$HOME; *"])
    assert call("shell", argv=["cat"], cwd="sub", stdin="é", env={"A": "b"}) == CommandPlan(
        ["cat"], "sub", {"A": "b"}, "é"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"argv": []},
        {"argv": [""]},
        {"argv": "ls"},
        {"argv": ["a\0"]},
        {"argv": ["a", "x" * 200_000]},
        {"argv": ["a"], "env": {"A": 1}},
        {"argv": ["a"], "env": {"A=": "1"}},
        {"argv": ["a"], "cwd": "a\0"},
        {"argv": ["a"], "timeout": 5},
    ],
)
def test_what_cannot_be_run_is_invalid(call: Call, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        call("shell", **arguments)
