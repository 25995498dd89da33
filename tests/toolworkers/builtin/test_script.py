"""``script``: a text for an interpreter of a short list, run as a file of the call's TMPDIR."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol import InvalidArguments
from toolworkers._plans import CommandPlan
from toolworkers._tools import ToolError

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def _output(plan: CommandPlan) -> str:
    return subprocess.run(plan.argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("interpreter", "text"),
    [
        ("sh", 'echo "$1"'),
        ("bash", 'x=("$@"); echo "${x[0]}"'),
        ("python3", "import sys\nprint(sys.argv[1])"),
        ("node", "console.log(process.argv[2])"),
    ],
)
def test_the_text_runs_with_its_arguments(call: Call, interpreter: str, text: str) -> None:
    assert shutil.which(interpreter), f"this machine has no {interpreter}: the test cannot be had"
    plan = call("script", text=text, interpreter=interpreter, args=["-x y"])
    assert (plan.argv[0], plan.argv[2:]) == (interpreter, ["-x y"])
    assert _output(plan) == "-x y\n"


def test_the_default_is_sh_without_arguments(call: Call) -> None:
    assert _output(call("script", text="echo $0 | sed 's/.*script-.*/a file/'; cat")) == "a file\n"


def test_the_file_is_private_in_tmpdir_and_named_for_removal(call: Call, scratch: Path) -> None:
    plan = call("script", text="é" * 100_000)
    (path,) = plan.temporary
    assert plan.argv == ["sh", path]
    assert [str(scratch / name) for name in os.listdir(scratch)] == [path]
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert Path(path).read_text() == "é" * 100_000


@pytest.mark.parametrize(
    "arguments",
    [{"interpreter": "perl"}, {"interpreter": "/bin/sh"}, {"args": ["a\0"]}, {"args": ["x" * 200_000]}, {"args": [1]}],
)
def test_what_cannot_be_run_is_invalid_and_leaves_no_file(call: Call, scratch: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        call("script", text="true", **arguments)
    assert os.listdir(scratch) == []


def test_a_scratch_that_cannot_be_written_is_the_tools_error(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(ToolError) as error:
        call("script", text="true")
    assert (error.value.code, error.value.class_.value) == ("scratch_failed", "tool")
