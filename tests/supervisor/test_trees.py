"""Trees that tools leave behind."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.trees import remove_tree


def test_a_tree_with_files_links_and_fifos_goes_and_what_links_lead_to_stays(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    outside.chmod(0o755)
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_text("x")
    (tree / "a" / "link").symlink_to(outside)
    (tree / "link").symlink_to(outside / "precious")
    os.mkfifo(tree / "a" / "b" / "fifo")
    remove_tree(str(tree))
    assert os.listdir(tmp_path) == ["outside"]
    assert (outside / "precious").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o755


def test_a_tree_deeper_than_recursion_and_longer_than_a_path_goes(tmp_path: Path):
    tree, here = tmp_path / "tree", os.open(".", os.O_RDONLY)
    tree.mkdir()
    try:
        os.chdir(tree)
        for _ in range(3_000):
            os.mkdir("directory")
            os.chdir("directory")
    finally:
        os.fchdir(here)
        os.close(here)
    remove_tree(str(tree))
    assert os.listdir(tmp_path) == []


def test_directories_closed_to_their_owner_go(tmp_path: Path):
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_text("x")
    for closed in (tree / "a" / "b", tree / "a", tree):
        closed.chmod(0)
    remove_tree(str(tree))
    assert os.listdir(tmp_path) == []


def test_a_file_goes_and_nothing_is_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    remove_tree(str(tmp_path / "file"))
    remove_tree(str(tmp_path / "file"))
    assert os.listdir(tmp_path) == []
