"""``edit_file``: exactly as often as the caller believes, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import InvalidArguments
from toolworkers._tools import ToolError
from toolworkers.builtin.edit_file import FILE_LIMIT

Call = Callable[..., Any]


def test_one_occurrence_is_replaced(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("one two three")
    (workspace / "f").chmod(0o750)
    assert call("edit_file", path="f", old="two", new="2") == {"path": "f", "replaced": 1, "bytes": 11}
    assert (workspace / "f").read_text() == "one 2 three"
    assert (workspace / "f").stat().st_mode & 0o777 == 0o750


def test_several_are_replaced_when_that_many_are_expected(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("a a a")
    assert call("edit_file", path="f", old="a", new="", count=3)["replaced"] == 3
    assert (workspace / "f").read_text() == "  "


@pytest.mark.parametrize(
    ("text", "count", "says"),
    [
        ("b", 1, "old does not occur in 'f'; expected 1"),
        ("a a", 1, "old occurs 2 times in 'f', expected 1; nothing was changed; allowed: count = 2"),
        ("a", 2, "old occurs 1 times in 'f', expected 2"),
    ],
)
def test_any_other_number_changes_nothing_and_is_told(
    workspace: Path, call: Call, text: str, count: int, says: str
) -> None:
    (workspace / "f").write_text(text)
    before = (workspace / "f").stat()
    with pytest.raises(ToolError) as error:
        call("edit_file", path="f", old="a", new="x", count=count)
    assert says in str(error.value)
    assert (error.value.code, error.value.class_.value) == ("occurrence_mismatch", "argument")
    assert (workspace / "f").stat() == before
    assert os.listdir(workspace) == ["f"]


def test_occurrences_do_not_overlap(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("aaa")
    call("edit_file", path="f", old="aa", new="b")
    assert (workspace / "f").read_text() == "ba"


def test_bytes_around_the_edit_stay_what_they_are(workspace: Path, call: Call) -> None:
    (workspace / "f").write_bytes(b"\xef\xbb\xbf\xff old\r\nrest \xe9\0")
    call("edit_file", path="f", old="old", new="né")
    assert (workspace / "f").read_bytes() == b"\xef\xbb\xbf\xff n\xc3\xa9\r\nrest \xe9\0"


@pytest.mark.parametrize("arguments", [{"old": ""}, {"count": 0}, {"count": -1}, {"count": True}, {"count": 1.0}])
def test_what_can_never_occur_is_invalid(workspace: Path, call: Call, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        call("edit_file", **({"path": "f", "old": "a", "new": "b"} | arguments))


def test_a_missing_file_is_not_made(workspace: Path, refused: Callable[..., tuple[str, str]]) -> None:
    assert refused("edit_file", path="f", old="a", new="b") == ("not_found", "argument")
    assert os.listdir(workspace) == []


def test_a_file_too_large_to_hold_is_refused(workspace: Path, refused: Callable[..., tuple[str, str]]) -> None:
    with open(workspace / "f", "wb") as file:
        file.truncate(FILE_LIMIT + 1)
    assert refused("edit_file", path="f", old="a", new="b") == ("too_large", "argument")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    text=st.text(st.sampled_from("abé\n"), max_size=20),
    old=st.text(st.sampled_from("abé"), min_size=1, max_size=3),
    new=st.text(st.sampled_from("abcé"), max_size=3),
    count=st.integers(1, 4),
)
def test_an_edit_is_done_exactly_when_the_count_is_right(
    workspace: Path, call: Call, text: str, old: str, new: str, count: int
) -> None:
    (workspace / "f").write_text(text)
    if text.count(old) == count:
        call("edit_file", path="f", old=old, new=new, count=count)
        assert (workspace / "f").read_text() == text.replace(old, new)
    else:
        with pytest.raises(ToolError):
            call("edit_file", path="f", old=old, new=new, count=count)
        assert (workspace / "f").read_text() == text
