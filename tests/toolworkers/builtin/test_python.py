"""``python``: the value of the last expression is the content. What a fresh worker would end with is put back here."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolworkers._tools import ToolError

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def _put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))


@pytest.mark.parametrize(
    ("code", "content"),
    [
        ("", None),
        ("x = 1", None),
        ("1 + 1", 2),
        ("x = 20\nx + 1", 21),
        ("{'a': [1, None, 'é']}", {"a": [1, None, "é"]}),
        ("(1, 2)", [1, 2]),
        ("{3}", [3]),
        ("None", None),
        ("print('x')", None),
        ("'x'  # a comment\n\n# another", "x"),
        ("def f():\n    return 5\nf()", 5),
        ("if True:\n    7", None),
        ("import math; math.floor(2.5)", 2),
        ("1; 2; 3", 3),
        ("__name__", "__main__"),
        ("x: int = 1\n__annotations__['x'].__name__", "int"),
    ],
)
def test_the_last_expression_is_the_content(call: Call, code: str, content: Any) -> None:
    assert call("python", code=code) == content


@pytest.mark.parametrize(
    ("code", "content"),
    [
        ("object", "<class 'object'>"),
        ("1j", "1j"),
        ("float('nan')", "nan"),
        ("2 ** 70", str(2**70)),
        ("[print]", "[<built-in function print>]"),
        ("x = []; x.append(x); x", "[[...]]"),
    ],
)
def test_a_value_without_a_json_form_is_shown_as_python_shows_it(call: Call, code: str, content: str) -> None:
    assert call("python", code=code) == content


def test_a_value_that_fits_no_result_is_refused_by_its_size_and_not_shown_in_part(call: Call) -> None:
    with pytest.raises(ToolError, match="2000005 bytes") as refused:
        call("python", code="'x' * 2_000_000")
    assert refused.value.code == "content"


def test_a_repr_is_bounded(call: Call) -> None:
    code = "class C:\n    def __repr__(self): return 'x' * (2 << 20)\nC()"
    assert len(call("python", code=code)) == 64 << 10


def test_classes_of_the_code_belong_to_its_own_main(call: Call) -> None:
    code = (
        "from __future__ import annotations\nimport dataclasses, pickle\n"
        "@dataclasses.dataclass\nclass P:\n    x: int\n"
        "pickle.loads(pickle.dumps(P(3))).x"
    )
    assert call("python", code=code) == 3


def test_modules_of_the_workspace_can_be_imported(workspace: Path, call: Call) -> None:
    (workspace / "a_module_of_the_workspace.py").write_text("x = 42\n")
    assert call("python", code="import a_module_of_the_workspace as m\nm.x") == 42


def test_an_exception_is_told_with_its_line_and_its_traceback_is_output(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ToolError) as error:
        call("python", code="x = 0\n1 / x\n")
    assert str(error.value) == "line 2: ZeroDivisionError: division by zero"
    assert (error.value.code, error.value.class_.value) == ("raised", "tool")
    printed = capsys.readouterr().err
    assert "1 / x" in printed
    assert "builtin/python.py" not in printed


def test_an_exception_in_the_last_expression_or_in_a_repr_is_told_as_well(call: Call) -> None:
    with pytest.raises(ToolError, match="ZeroDivisionError"):
        call("python", code="1 / 0")
    with pytest.raises(ToolError, match="no repr"):
        call("python", code="class C:\n    def __repr__(self): raise ValueError('no repr')\nC()")


@pytest.mark.parametrize("code", ["1 +", "def f(:", "x = 'a", "\0", "return 1", "(" * 10_000, "await f()"])
def test_what_is_no_python_is_an_argument_error(call: Call, code: str) -> None:
    with pytest.raises(ToolError) as error:
        call("python", code=code)
    assert (error.value.code, error.value.class_.value) == ("syntax_error", "argument")


def test_exit_zero_is_an_end_and_any_other_an_error(call: Call) -> None:
    assert call("python", code="import sys; sys.exit()") is None
    assert call("python", code="raise SystemExit(0)") is None
    with pytest.raises(ToolError, match=r"sys\.exit\(3\)") as error:
        call("python", code="import sys; sys.exit(3)")
    assert error.value.code == "exit"


def test_our_own_future_imports_do_not_reach_the_code(call: Call) -> None:
    assert call("python", code="def f(x: int): ...\nf.__annotations__['x'].__name__") == "int"
