"""``read_file``: whole lines, in bounds, and how to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import InvalidArguments
from toolworkers._tools import ToolError
from toolworkers.builtin.read_file import TEXT_LIMIT

Call = Callable[..., Any]


def test_a_whole_file_is_its_text(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("one\ntwo\nthree")
    assert call("read_file", path="f") == {
        "path": "f", "text": "one\ntwo\nthree", "start_line": 1, "lines": 3, "truncated": False,
    }  # fmt: skip


def test_lines_of_a_file_and_where_to_go_on(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("one\ntwo\nthree\nfour\n")
    part = call("read_file", path="f", start_line=2, max_lines=2)
    assert (part["text"], part["lines"], part["truncated"], part["next_line"]) == ("two\nthree\n", 2, True, 4)
    rest = call("read_file", path="f", start_line=part["next_line"], max_lines=2)
    assert (rest["text"], rest["truncated"]) == ("four\n", False)


def test_an_empty_file_is_no_lines(workspace: Path, call: Call) -> None:
    (workspace / "f").touch()
    answer = call("read_file", path="f")
    assert (answer["text"], answer["lines"], answer["truncated"]) == ("", 0, False)


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2)])
def test_a_start_behind_the_end_says_how_many_lines_there_are(
    workspace: Path, call: Call, text: str, lines: int
) -> None:
    (workspace / "f").write_text(text)
    with pytest.raises(ToolError, match=f"'f' has {lines} lines") as error:
        call("read_file", path="f", start_line=lines + 1 if lines else 2)
    assert (error.value.code, error.value.class_.value) == ("past_end", "argument")


def test_a_file_over_the_limit_is_cut_at_a_line_and_can_be_read_on(workspace: Path, call: Call) -> None:
    lines = [f"line {number:06d} {'x' * 80}\n" for number in range(20_000)]
    (workspace / "f").write_text("".join(lines))
    read, start = "", 1
    for _ in range(10):
        part = call("read_file", path="f", start_line=start)
        assert len(part["text"].encode()) <= TEXT_LIMIT
        read += part["text"]
        if not part["truncated"]:
            break
        start = part["next_line"]
    assert read == "".join(lines)


@pytest.mark.parametrize("last", ["x" * 10, "x" * 11, "x" * 40, "x" * 9 + "\n"])
def test_a_last_line_that_no_longer_fits_is_not_lost(workspace: Path, call: Call, last: str) -> None:
    (workspace / "f").write_text("x" * (TEXT_LIMIT - 10) + "\n" + last)
    part = call("read_file", path="f")
    assert (part["truncated"], part["lines"], part["next_line"]) == (True, 1, 2)
    assert call("read_file", path="f", start_line=2)["text"] == last


def test_one_line_over_the_limit_is_cut_and_said_to_be(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("é" * TEXT_LIMIT + "\nnext\n")
    part = call("read_file", path="f")
    assert part["truncated"]
    assert 0 < len(part["text"].encode()) <= TEXT_LIMIT
    assert set(part["text"]) <= {"é", "\ufffd"}
    assert call("read_file", path="f", start_line=part["next_line"])["text"] == "next\n"


def test_a_line_of_exactly_the_limit_is_not_cut(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("x" * (TEXT_LIMIT - 1) + "\n")
    assert not call("read_file", path="f")["truncated"]
    (workspace / "f").write_text("x" * TEXT_LIMIT + "\n")
    assert call("read_file", path="f")["truncated"]


def test_bytes_that_are_no_utf8_are_marked_and_stay_within_the_limit(workspace: Path, call: Call) -> None:
    (workspace / "f").write_bytes(b"caf\xe9\n")
    assert call("read_file", path="f")["text"] == "caf\ufffd\n"
    (workspace / "f").write_bytes(b"\xff" * TEXT_LIMIT)  # each becomes three bytes
    part = call("read_file", path="f")
    assert part["truncated"]
    assert len(part["text"].encode()) <= TEXT_LIMIT


def test_a_binary_file_is_refused(workspace: Path, call: Call) -> None:
    (workspace / "f").write_bytes(b"ELF\0\1")
    with pytest.raises(ToolError, match="binary") as error:
        call("read_file", path="f")
    assert error.value.code == "not_text"


def test_a_missing_file_is_an_argument_error_in_the_systems_words(call: Call) -> None:
    with pytest.raises(ToolError) as error:
        call("read_file", path="no/such")
    assert (error.value.code, error.value.class_.value) == ("not_found", "argument")
    assert str(error.value) == "[Errno 2] No such file or directory: 'no/such'"


def test_a_directory_is_said_to_be_one(tree: Path, refused: Callable[..., tuple[str, str]]) -> None:
    assert refused("read_file", path="a") == ("is_a_directory", "argument")
    assert refused("read_file", path=".") == ("is_a_directory", "argument")
    assert refused("read_file", path="b.py/x") == ("not_a_directory", "argument")


@pytest.mark.parametrize("arguments", [{"start_line": 0}, {"start_line": -1}, {"max_lines": 0}, {"start_line": True}])
def test_line_numbers_start_at_one(call: Call, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        call("read_file", path="f", **arguments)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), lines=st.integers(1, 4))
def test_reading_on_gives_the_whole_text_back(workspace: Path, call: Call, text: str, lines: int) -> None:
    (workspace / "f").write_bytes(text.encode())
    read, start = "", 1
    while True:
        part = call("read_file", path="f", start_line=start, max_lines=lines)
        read += part["text"]
        if not part["truncated"]:
            break
        start = part["next_line"]
    assert read == text
