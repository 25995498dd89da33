"""``search``: with ripgrep or without, the answer is the same."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import InvalidArguments
from toolworkers._tools import ToolError
from toolworkers.builtin import search as search_module
from toolworkers.builtin._matches import FILE_LIMIT
from toolworkers.builtin._ripgrep import find_ripgrep, portable

Call = Callable[..., Any]
_RIPGREP = find_ripgrep()


@pytest.fixture(
    params=[
        "python",
        pytest.param(
            "ripgrep",
            marks=pytest.mark.skipif(_RIPGREP is None, reason="no rg on PATH: its answers were not compared"),
        ),
    ]
)
def searcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of the two must answer; the other one must not."""

    def unwanted(*_: object) -> Any:
        raise AssertionError("the other searcher was asked")

    if request.param == "python":
        monkeypatch.setattr(search_module, "find_ripgrep", lambda: None)
    else:
        monkeypatch.setattr(search_module, "scan", unwanted)
    return str(request.param)


def _lines(answer: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(match["path"], match["line"], match["text"]) for match in answer["matches"]]


_TODO = [
    (".hidden/x.py", 1, "hidden TODO"),
    ("a/deep/two.txt", 2, "TODO upper"),
    ("a/deep/two.txt", 3, "last TODO"),
    ("a/one.py", 2, "    return 'TODO'"),
    ("a.txt", 1, "a TODO that sorts after the directory a"),
    ("b.py", 2, "# TODO b"),
    ("latin.py", 1, "TODO caf\ufffd"),
    ("é ñ.py", 1, "Unicode TODO é"),
]


@pytest.mark.usefixtures("searcher")
def test_every_match_is_found_in_order_and_what_is_passed_over_is_not(tree: Path, call: Call) -> None:
    answer = call("search", pattern="TODO")
    assert _lines(answer) == _TODO
    assert not answer["truncated"]


@pytest.mark.usefixtures("searcher")
@pytest.mark.parametrize(
    ("pattern", "glob", "expected"),
    [
        ("(?i)todo", "*.txt", [("a/deep/two.txt", 1, "todo lower"), *_TODO[1:3], _TODO[4]]),
        ("TODO", "*.py", [_TODO[0], _TODO[3], *_TODO[5:]]),
        ("TODO", "a/**", _TODO[1:4]),
        ("TODO", "**/*.{txt,md}", [*_TODO[1:3], _TODO[4]]),
        ("TODO", "no*", []),
        (r"^# TODO \w$", None, [_TODO[5]]),
        (r"\bone\(\)", None, [("a/one.py", 1, "def one():")]),
        (r"TODO$", None, [_TODO[0], _TODO[2]]),
        (r"TODO\s", "two.txt", [_TODO[1]]),  # the \r of a line end is a character of the line
        ("^$", None, []),
        ("[^ -z]$", None, [*_TODO[1:2], *_TODO[7:]]),
        ("é", None, [_TODO[7]]),
        ("return|import", None, [("a/one.py", 2, "    return 'TODO'"), ("b.py", 1, "import os")]),
        ("no such text", None, []),
    ],
)
def test_patterns_and_globs_mean_the_same_to_both(
    tree: Path, call: Call, pattern: str, glob: str | None, expected: list[tuple[str, int, str]]
) -> None:
    (tree / "latin.py").write_bytes(b"TODO caf\xe9 \n")
    found = _lines(call("search", pattern=pattern, glob=glob))
    assert found == [(path, line, text if path != "latin.py" else text + " ") for path, line, text in expected]


@pytest.mark.usefixtures("searcher")
def test_a_file_or_a_directory_can_be_searched_alone(tree: Path, call: Call) -> None:
    assert _lines(call("search", pattern="TODO", path="a/deep")) == _TODO[1:3]
    assert _lines(call("search", pattern="TODO", path="a/deep/two.txt")) == _TODO[1:3]
    assert _lines(call("search", pattern="TODO", path="link.py")) == [_TODO[5]]
    assert _lines(call("search", pattern="TODO", path=".hidden")) == _TODO[:1]
    assert _lines(call("search", pattern="TODO", path="node_modules")) == [("node_modules/m/index.js", 1, "TODO bulk")]
    assert _lines(call("search", pattern="TODO", path="binary.py")) == []
    assert _lines(call("search", pattern="TODO", path="b.py", glob="*.txt")) == []


@pytest.mark.usefixtures("searcher")
def test_more_than_max_is_marked_and_exactly_max_is_not(tree: Path, call: Call) -> None:
    cut = call("search", pattern="TODO", max=3)
    assert (_lines(cut), cut["truncated"]) == (_TODO[:3], True)
    assert not call("search", pattern="TODO", max=len(_TODO))["truncated"]
    assert call("search", pattern="TODO", max=len(_TODO) - 1)["truncated"]


@pytest.mark.usefixtures("searcher")
def test_long_lines_are_shown_in_part(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("x" * 2_000_000 + "y\n")
    (match,) = call("search", pattern="xy")["matches"]
    assert match["text"] == "x" * 500


@pytest.mark.usefixtures("searcher")
def test_many_matches_end_before_the_frame_does(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text(("match " + "é" * 490 + "\n") * 5_000)
    answer = call("search", pattern="match", max=10_000)
    assert answer["truncated"]
    assert 100 < len(answer["matches"]) < 5_000


@pytest.mark.usefixtures("searcher")
def test_large_files_are_passed_over_in_a_walk_and_refused_when_named(workspace: Path, call: Call) -> None:
    (workspace / "fits").write_bytes(b"x\n" + b"y" * (FILE_LIMIT - 2))
    (workspace / "large").write_bytes(b"x\n" + b"y" * (FILE_LIMIT - 1))
    assert _lines(call("search", pattern="^x$")) == [("fits", 1, "x")]
    with pytest.raises(ToolError) as error:
        call("search", pattern="^x$", path="large")
    assert error.value.code == "too_large"


@pytest.mark.usefixtures("searcher")
def test_a_nul_makes_a_file_binary_near_its_beginning_only(workspace: Path, call: Call) -> None:
    (workspace / "early").write_bytes(b"needle\n" + b"." * 8_000 + b"\0\n")
    (workspace / "late").write_bytes(b"needle\n" + b"." * 9_000 + b"\0\nneedle\n")
    assert _lines(call("search", pattern="needle")) == [("late", 1, "needle"), ("late", 3, "needle")]


@pytest.mark.usefixtures("searcher")
def test_a_byte_order_mark_changes_no_encoding(workspace: Path, call: Call) -> None:
    (workspace / "f").write_bytes("needle\n".encode("utf-16"))
    (workspace / "g").write_bytes("\ufeffneedle\n".encode())
    assert [match["path"] for match in call("search", pattern="needle")["matches"]] == ["g"]
    assert call("search", pattern="^needle")["matches"] == []


@pytest.mark.usefixtures("searcher")
def test_directories_are_entered_as_deep_as_the_walk_goes(workspace: Path, call: Call) -> None:
    for depth in (98, 99, 100, 101):
        place = workspace.joinpath(*["d"] * depth)
        place.mkdir(parents=True, exist_ok=True)
        (place / "f").write_text("needle\n")
    depths = [match["path"].count("/") for match in call("search", pattern="needle")["matches"]]
    assert sorted(depths) == [98, 99]


@pytest.mark.usefixtures("searcher")
def test_nothing_is_left_of_a_search_that_was_cut(tree: Path, call: Call) -> None:
    before = os.listdir("/proc/self/fd")
    call("search", pattern="TODO", max=1)
    call("search", pattern="TODO")
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.usefixtures("searcher")
@pytest.mark.parametrize("pattern", ["[", "(", "*", "a{2}{3}", "(?P<n>", "[[:alpha:]]", "[a--b]", "[a&&b]", "\\p{L}"])
def test_a_pattern_that_is_none_or_means_two_things_is_an_argument_error(
    refused: Callable[..., tuple[str, str]], pattern: str
) -> None:
    assert refused("search", pattern=pattern) == ("invalid_pattern", "argument")


@pytest.mark.parametrize(
    "pattern",
    ["a++", "a*+b", "a?+", "a{2}+", r"\<a", r"\Aa", r"a\Z", "(?=a)", "(?s:a)", "[[a]", "[a--b]", "[a&&b]", "[a~~b]",
     "a{", "}", "]", r"\p{L}", r"\x41", "(?P<n>a)", r"(a)\1"],
)  # fmt: skip
def test_what_the_engines_may_read_differently_does_not_go_to_ripgrep(pattern: str) -> None:
    assert not portable(pattern)


@pytest.mark.parametrize(
    "pattern", ["", "def f", "^a.*b$", r"\bf\(", "(?i)todo", "(?:a|b)+?", "[^a-z_]{1,3}", "[]a-]", r"[\w.]+@"]
)
def test_ordinary_patterns_go_to_ripgrep(pattern: str) -> None:
    assert portable(pattern)


def test_a_pattern_that_ripgrep_reads_otherwise_is_left_to_python(tree: Path, call: Call) -> None:
    assert _lines(call("search", pattern="(?<=# )TODO")) == [_TODO[5]]
    assert _lines(call("search", pattern=r"\A(hid)?(?(1)den|Uni).*TODO\Z")) == [_TODO[0]]
    (tree / "angle").write_text("a <b> c\n")
    assert _lines(call("search", pattern=r"\<b\>")) == [("angle", 1, "a <b> c")]


def test_a_ripgrep_that_refuses_or_cannot_run_is_replaced_by_python(
    tree: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "rg"
    monkeypatch.setattr(search_module, "find_ripgrep", lambda: str(program))
    for text in ("#!/bin/sh\nexit 2\n", "#!/no/such/interpreter\n", "#!/bin/sh\nkill -9 $$\n", "#!/bin/sh\nexit 99\n"):
        program.write_text(text)
        program.chmod(0o755)
        assert _lines(call("search", pattern="TODO")) == _TODO


def test_a_ripgrep_that_is_killed_halfway_is_an_error_and_no_short_answer(
    tree: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "rg"
    program.write_text(
        "#!/bin/sh\n"
        """echo '{"type":"match","data":{"path":{"text":"./b.py"},"lines":{"text":"# TODO b"},"line_number":2}}'\n"""
        "kill -9 $$\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(search_module, "find_ripgrep", lambda: str(program))
    with pytest.raises(ToolError, match="signal 9") as error:
        call("search", pattern="TODO")
    assert error.value.code == "search_failed"


@pytest.mark.parametrize("arguments", [{}, {"pattern": 1}, {"pattern": "x", "max": 0}, {"pattern": "x", "glob": "{a"}])
def test_what_means_nothing_is_invalid(call: Call, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        call("search", **arguments)


def test_a_missing_path_is_not_found(refused: Callable[..., tuple[str, str]]) -> None:
    assert refused("search", pattern="x", path="no") == ("not_found", "argument")


_alphabet = st.text(st.sampled_from("ab01 .^$|()[]{}*+?\\dwsSbB-,é"), max_size=8)


@pytest.mark.skipif(_RIPGREP is None, reason="no rg on PATH: its answers were not compared")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=_alphabet, lines=st.lists(st.text(st.sampled_from("ab01 -.éE,"), max_size=6), max_size=6))
def test_both_searchers_agree_on_any_pattern_that_goes_to_ripgrep(
    tmp_path: Path, pattern: str, lines: list[str]
) -> None:
    if not portable(pattern):
        return
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    (tmp_path / "f").write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run(
        [str(_RIPGREP), "--no-config", "-n", "-e", pattern, "--", "f"], cwd=tmp_path, capture_output=True, text=True
    )
    if done.returncode == 2:
        return
    expected = [f"{number}:{line}\n" for number, line in enumerate(lines, 1) if compiled.search(line)]
    assert done.stdout.splitlines(keepends=True) == expected
