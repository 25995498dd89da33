"""Which file a command's first word names."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolworkers._programs import find_program


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, mode in (("first", 0o755), ("second", 0o755), ("plain", 0o644)):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("")
        (tmp_path / "bin" / name).chmod(mode)
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "second").write_text("")
    return tmp_path


def test_a_word_is_looked_for_on_the_calls_path(place: Path) -> None:
    assert find_program("first", f"/nowhere:{place}/early:{place}/bin") == f"{place}/bin/first"


def test_a_file_that_cannot_run_is_passed_over_for_one_that_can(place: Path) -> None:
    assert find_program("second", f"{place}/early:{place}/bin") == f"{place}/bin/second"


def test_a_directory_of_the_name_is_no_program(place: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_program("early", str(place))


def test_a_word_with_a_slash_is_a_path(place: Path) -> None:
    assert find_program(f"{place}/bin/first", "") == f"{place}/bin/first"


def test_an_empty_entry_is_the_working_directory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place / "bin")
    assert find_program("first", f"/nowhere:{''}") == "./first"


@pytest.mark.parametrize("word", ["missing", "", "./missing", "/no/such"])
def test_what_is_not_there_is_not_found(place: Path, word: str) -> None:
    with pytest.raises(FileNotFoundError):
        find_program(word, f"{place}/bin")


def test_what_is_there_and_cannot_run_is_told_apart(place: Path) -> None:
    with pytest.raises(PermissionError, match="not executable"):
        find_program("plain", f"{place}/bin")
    with pytest.raises(PermissionError, match="is a directory"):
        find_program(f"{place}/bin", "")
