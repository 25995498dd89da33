from __future__ import annotations

import os
import socket

from supervisor.lock_files import MOST, left_behind


def found(patterns: tuple[str, ...], start: object) -> list[str]:
    names: list[str] = []
    left_behind(patterns, str(start), names)
    return names


def test_files_are_found_by_path_and_pattern_below_the_start_hidden_ones_too(tmp_path):
    (tmp_path / ".git").mkdir()
    for name in (".git/index.lock", ".git/HEAD", "a.lock", ".b.lock"):
        (tmp_path / name).touch()
    assert found((".git/index.lock",), tmp_path) == [f"{tmp_path}/.git/index.lock"]
    assert sorted(found(("*.lock", ".git/*.lock"), tmp_path)) == sorted(
        f"{tmp_path}/{name}" for name in (".git/index.lock", "a.lock", ".b.lock")
    )
    assert found((f"{tmp_path}/a.lock",), "/") == [f"{tmp_path}/a.lock"]


def test_home_is_the_daemons_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.lock").touch()
    assert found(("~/x.lock",), "/nowhere") == [f"{tmp_path}/x.lock"]


def test_what_is_not_there_or_may_not_be_looked_at_is_no_lock(tmp_path):
    assert found(("a.lock", "*/b.lock", "c\0d"), tmp_path) == []
    assert found(("a.lock",), "/nonexistent") == []


def test_no_tree_is_walked(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.lock").touch()
    assert found(("**/x.lock",), tmp_path) == []


def test_a_lock_of_any_kind_and_any_name_is_only_named(tmp_path):
    os.mkfifo(tmp_path / "fifo.lock")  # whoever opened it would wait for ever
    os.symlink("/nowhere", tmp_path / "link.lock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.lock"))
        open(os.fsencode(tmp_path) + b"/\xff\x1b.lock", "wb").close()
        names = found(("*.lock",), tmp_path)
    assert len(names) == 4
    assert any(name.endswith("\\xff\\x1b.lock") for name in names)
    assert len(list(tmp_path.iterdir())) == 4


def test_only_the_first_few_are_named(tmp_path):
    for number in range(MOST + 5):
        (tmp_path / f"{number}.lock").touch()
    assert len(found(("*.lock", "*.lock"), tmp_path)) == MOST
