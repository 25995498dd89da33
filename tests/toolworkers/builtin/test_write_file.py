"""``write_file``: the old bytes or all of the new ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolworkers._tools import ToolError
from toolworkers.builtin import _writing

Call = Callable[..., Any]


def test_a_new_file_gets_the_mode_of_the_umask(workspace: Path, call: Call) -> None:
    before = os.umask(0o027)
    try:
        assert call("write_file", path="f", text="é\n") == {"path": "f", "bytes": 3, "created": True}
    finally:
        os.umask(before)
    assert (workspace / "f").read_bytes() == "é\n".encode()
    assert stat.S_IMODE((workspace / "f").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o444])
def test_an_old_file_keeps_its_mode_and_owner(workspace: Path, call: Call, mode: int) -> None:
    (workspace / "f").write_text("old, and longer than the new text")
    (workspace / "f").chmod(mode)
    if os.getuid() == 0:
        os.chown(workspace / "f", 1234, 4321)
    before = (workspace / "f").stat()
    assert call("write_file", path="f", text="new") == {"path": "f", "bytes": 3, "created": False}
    after = (workspace / "f").stat()
    assert (workspace / "f").read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino  # replaced, not rewritten: whoever reads the old one reads all of it


def test_a_link_within_the_root_stays_a_link_and_its_target_changes(tree: Path, call: Call) -> None:
    assert call("write_file", path="link.py", text="new")["path"] == "b.py"
    assert (tree / "link.py").is_symlink()
    assert (tree / "b.py").read_text() == "new"


def test_another_name_of_the_file_keeps_the_old_bytes(workspace: Path, call: Call) -> None:
    (workspace / "f").write_text("old")
    os.link(workspace / "f", workspace / "other")
    call("write_file", path="f", text="new")
    assert ((workspace / "f").read_text(), (workspace / "other").read_text()) == ("new", "old")


def test_the_longest_name_can_be_written(workspace: Path, call: Call) -> None:
    call("write_file", path="x" * 255, text="t")
    call("write_file", path="é" * 127, text="t")
    assert sorted(len(os.fsencode(name)) for name in os.listdir(workspace)) == [254, 255]


def test_a_dangling_link_makes_its_target(workspace: Path, call: Call) -> None:
    (workspace / "link").symlink_to("target")
    assert call("write_file", path="link", text="t") == {"path": "target", "bytes": 1, "created": True}


@pytest.mark.parametrize(
    ("path", "code"),
    [("a", "is_a_directory"), (".", "is_a_directory"), ("no/f", "not_found"), ("b.py/f", "not_a_directory")],
)
def test_what_is_no_place_for_a_file_is_refused(
    tree: Path, refused: Callable[..., tuple[str, str]], path: str, code: str
) -> None:
    before = sorted(os.listdir(tree))
    assert refused("write_file", path=path, text="t") == (code, "argument")
    assert sorted(os.listdir(tree)) == before


@pytest.mark.parametrize("step", ["write", "fchmod", "fsync", "rename"])
def test_a_failure_at_any_step_leaves_the_old_file_and_no_other(
    workspace: Path, call: Call, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (workspace / "f").write_text("old")
    descriptors = os.listdir("/proc/self/fd")

    def fail(*_arguments: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_writing.os, step, fail)
    with pytest.raises(ToolError, match=r"\[Errno 28\] No space left on device: 'f'") as error:
        call("write_file", path="f", text="new")
    monkeypatch.undo()
    assert (error.value.code, error.value.class_.value) == ("os_error", "tool")
    assert os.listdir(workspace) == ["f"]
    assert (workspace / "f").read_text() == "old"
    assert os.listdir("/proc/self/fd") == descriptors


def test_short_writes_are_carried_on(workspace: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(_writing.os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    call("write_file", path="f", text="0123456789")
    assert (workspace / "f").read_text() == "0123456789"


def test_the_file_and_then_its_directory_are_synced(
    workspace: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(descriptor: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_sync(descriptor)

    def rename(*arguments: Any, **named: Any) -> None:
        steps.append("rename")
        real_rename(*arguments, **named)

    monkeypatch.setattr(_writing.os, "fsync", sync)
    monkeypatch.setattr(_writing.os, "rename", rename)
    call("write_file", path="f", text="t")
    assert steps == ["file", "rename", "directory"]
