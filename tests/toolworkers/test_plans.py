"""What a command may be made of: only what execve(2) can take."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import InvalidArguments
from toolworkers._plans import ELEMENT_LIMIT, CommandPlan


def test_a_plan_keeps_what_it_was_given() -> None:
    plan = CommandPlan(["ls", "-l", ""], "/tmp", {"A": "b=c"}, "text")
    assert (plan.argv, plan.cwd, plan.env, plan.stdin) == (["ls", "-l", ""], "/tmp", {"A": "b=c"}, "text")


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({"argv": []}, "argv is empty"),
        ({"argv": [""]}, "argv is empty"),
        ({"argv": ["ls", "a\0b"]}, r"argv\[1\] contains a NUL"),
        ({"argv": ["ls", "\ud800"]}, r"argv\[1\] contains a lone surrogate"),
        ({"argv": ["ls", "x" * 200_000]}, r"argv\[1\] has 200000 bytes; allowed: at most 131071"),
        ({"argv": ["ls", "é" * 70_000]}, r"argv\[1\] has 140000 bytes"),
        ({"argv": ["ls", 3]}, r"argv\[1\] is int"),
        ({"argv": ["ls"], "env": {"A=B": "c"}}, "a name without '='"),
        ({"argv": ["ls"], "env": {"": "c"}}, "a name without '='"),
        ({"argv": ["ls"], "env": {"A": "b\0"}}, r"env\.A contains a NUL"),
        ({"argv": ["ls"], "env": {"A": "x" * ELEMENT_LIMIT}}, r"env\.A has"),
        ({"argv": ["ls"], "cwd": "a\0"}, "cwd contains a NUL"),
    ],
)
def test_what_the_kernel_cannot_take_is_refused_by_name(plan: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidArguments, match=named):
        CommandPlan(**plan)  # type: ignore[arg-type]  # wrong on purpose


def test_the_longest_allowed_element_is_one_the_kernel_really_takes() -> None:
    longest = CommandPlan(["/bin/true", "x" * (ELEMENT_LIMIT - 1)])
    assert subprocess.run(longest.argv, check=False).returncode == 0
    with pytest.raises(InvalidArguments):
        CommandPlan([*longest.argv[:1], longest.argv[1] + "x"])
    with pytest.raises(OSError):
        subprocess.run([*longest.argv[:1], longest.argv[1] + "x"], check=False)


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1))
def test_every_accepted_plan_has_elements_of_c_strings(argv: list[str]) -> None:
    try:
        plan = CommandPlan(argv)
    except InvalidArguments:
        return
    assert all(b"\0" not in element.encode() for element in plan.argv)
