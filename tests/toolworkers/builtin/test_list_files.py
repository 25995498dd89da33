"""``list_files``: the same order everywhere, in bounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol import InvalidArguments

Call = Callable[..., Any]


def test_every_regular_file_is_listed_in_order_and_what_is_bulk_or_a_link_is_not(tree: Path, call: Call) -> None:
    assert call("list_files") == {
        "files": [
            ".gitignore", ".hidden/x.py", "a/deep/two.txt", "a/one.py", "a.txt", "b.py", "binary.py", "empty.py",
            "latin.py", "é ñ.py",
        ],
        "truncated": False,
    }  # fmt: skip


def test_a_glob_without_a_slash_is_for_names_and_with_one_for_paths(tree: Path, call: Call) -> None:
    assert call("list_files", glob="*.py")["files"] == [
        ".hidden/x.py", "a/one.py", "b.py", "binary.py", "empty.py", "latin.py", "é ñ.py",
    ]  # fmt: skip
    assert call("list_files", glob="a/*")["files"] == ["a/one.py"]
    assert call("list_files", glob="a/**")["files"] == ["a/deep/two.txt", "a/one.py"]
    assert call("list_files", glob="**/*.txt")["files"] == ["a/deep/two.txt", "a.txt"]


def test_paths_are_those_that_other_file_tools_take(tree: Path, call: Call) -> None:
    assert call("list_files", path="a/deep")["files"] == ["a/deep/two.txt"]
    assert call("list_files", path=str(tree / "a" / "deep"))["files"] == ["a/deep/two.txt"]
    assert call("list_files", path="node_modules")["files"] == ["node_modules/m/index.js"]


def test_more_than_max_is_marked_and_exactly_max_is_not(tree: Path, call: Call) -> None:
    assert call("list_files", max=2) == {"files": [".gitignore", ".hidden/x.py"], "truncated": True}
    assert not call("list_files", max=10)["truncated"]
    assert call("list_files", max=9)["truncated"]


def test_long_paths_end_the_list_before_the_frame_does(workspace: Path, call: Call) -> None:
    deep = workspace
    for _ in range(12):
        deep = deep / ("d" * 200)
    deep.mkdir(parents=True)
    for number in range(400):
        (deep / f"{number:03d}{'f' * 240}").touch()
    answer = call("list_files")
    assert answer["truncated"]
    assert 100 < len(answer["files"]) < 400


def test_a_name_that_is_no_utf8_is_shown_as_well_as_text_can(workspace: Path, call: Call) -> None:
    with open(os.fsencode(workspace) + b"/caf\xe9", "w"):
        pass
    assert call("list_files")["files"] == ["caf\ufffd"]


def test_a_file_is_no_directory_and_a_missing_one_is_not_found(
    tree: Path, refused: Callable[..., tuple[str, str]]
) -> None:
    assert refused("list_files", path="b.py") == ("not_a_directory", "argument")
    assert refused("list_files", path="no") == ("not_found", "argument")


@pytest.mark.parametrize("arguments", [{"max": 0}, {"max": 10_001}, {"glob": "[z-a]"}, {"glob": "{a"}])
def test_what_means_nothing_is_invalid(call: Call, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        call("list_files", **arguments)


def test_no_descriptor_stays_open_when_the_list_is_cut(tree: Path, call: Call) -> None:
    before = os.listdir("/proc/self/fd")
    call("list_files", max=3)
    call("list_files")
    assert os.listdir("/proc/self/fd") == before
