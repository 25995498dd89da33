"""Paths of the file tools: nothing outside of the roots is ever opened, whatever the path looks like."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolworkers._context import Context
from toolworkers._tools import ToolError
from toolworkers.builtin._beneath import locate, open_parent, open_regular

Refused = Callable[..., tuple[str, str]]
_DENIED = ("sandbox_denied", "policy")
_TOUCH = [
    ("read_file", {}),
    ("list_files", {}),
    ("search", {"pattern": "x"}),
    ("write_file", {"text": "t"}),
    ("edit_file", {"old": "a", "new": "b"}),
]


@pytest.mark.parametrize(("name", "arguments"), _TOUCH)
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret.txt",
        "/etc/passwd",
        "a/../../secret.txt",
        "out/secret.txt",
        "secret",
        "loop/out/secret.txt",
        "/",
    ],
)
def test_every_file_tool_denies_what_lies_outside(
    tree: Path, refused: Refused, name: str, arguments: dict[str, Any], path: str
) -> None:
    (tree / "secret").symlink_to("../secret.txt")
    before = (tree.parent / "secret.txt").read_text()
    assert refused(name, path=path, **arguments) == _DENIED
    assert (tree.parent / "secret.txt").read_text() == before


def test_a_sibling_whose_name_begins_like_the_root_is_outside(workspace: Path, refused: Refused) -> None:
    sibling = workspace.with_name("workspace-two")
    sibling.mkdir()
    (sibling / "f").write_text("x")
    assert refused("read_file", path=str(sibling / "f")) == _DENIED


def test_what_is_outside_is_denied_whether_it_exists_or_not(refused: Refused) -> None:
    assert refused("read_file", path="../no-such-file") == _DENIED


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path_is_an_argument_error(refused: Refused, path: str) -> None:
    assert refused("read_file", path=path) == ("bad_path", "argument")


def test_a_name_too_long_is_told_in_the_systems_words(call: Callable[..., Any]) -> None:
    with pytest.raises(ToolError, match=r"\[Errno 36\] File name too long: 'xxx"):
        call("read_file", path="x" * 300)


def test_an_absolute_path_and_a_link_within_the_root_are_allowed(tree: Path, call: Callable[..., Any]) -> None:
    assert call("read_file", path=str(tree / "b.py"))["path"] == "b.py"
    assert call("read_file", path="link.py")["path"] == "b.py"
    assert call("read_file", path="loop/loop/b.py")["path"] == "b.py"


def test_the_root_itself_may_be_reached_through_a_link(tmp_path: Path, workspace: Path) -> None:
    (workspace / "f").write_text("x")
    (tmp_path / "way").symlink_to(workspace)
    place = locate(Context(deadline_ns=0, workdir="/", root=tmp_path / "way"), "f")
    with open_regular(place) as file:
        assert file.read() == b"x"


def test_a_configured_root_is_reached_by_its_absolute_path_only(tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "f").write_text("more")
    ctx = Context(deadline_ns=0, workdir="/", root=workspace, roots=[tmp_path / "extra"])
    place = locate(ctx, str(tmp_path / "extra" / "f"))
    assert place.shown == str(tmp_path / "extra" / "f")
    with open_regular(place) as file:
        assert file.read() == b"more"


@pytest.mark.parametrize("name", ["read_file", "edit_file", "search", "write_file"])
def test_a_fifo_a_socket_and_a_device_are_refused_and_never_opened(
    workspace: Path, refused: Refused, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(workspace / "fifo")
    monkeypatch.chdir(workspace)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        arguments = dict(_TOUCH)[name]
        for path in ("fifo", "sock"):
            assert refused(name, path=path, **arguments) == ("not_a_file", "argument")
    assert not [entry for entry in os.listdir(workspace) if entry.endswith(".tmp")]


def test_a_device_is_named_for_what_it_is() -> None:
    ctx = Context(deadline_ns=0, workdir="/", root="/dev")
    with (
        pytest.raises(ToolError, match="'null' is a character device; allowed: a regular file"),
        open_regular(locate(ctx, "null")),
    ):
        pass


@pytest.mark.parametrize("victim", ["inner", "inner/f"])
def test_a_link_that_is_swapped_in_after_the_check_leads_nowhere(tmp_path: Path, workspace: Path, victim: str) -> None:
    """The race a path check alone loses: between `locate` and `open_regular` a component becomes a link out."""
    (workspace / "inner").mkdir()
    (workspace / "inner" / "f").write_text("inside")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    place = locate(Context(deadline_ns=0, workdir="/", root=workspace), "inner/f")
    (workspace / victim).rename(tmp_path / "moved")
    (workspace / victim).symlink_to(outside if victim == "inner" else outside / "f")
    with pytest.raises((OSError, ToolError)), open_regular(place) as file:
        pytest.fail(f"read {file.read()!r}")


def test_no_descriptor_stays_open_whatever_happens(tree: Path, context: Context) -> None:
    before = os.listdir("/proc/self/fd")
    for path in ("b.py", "a/deep/two.txt", "a", "no", "b.py/x", "a/no/x"):
        place = locate(context, path)
        try:
            with open_regular(place):
                pass
        except (OSError, ToolError):
            pass
    assert os.listdir("/proc/self/fd") == before


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.sampled_from(["..", ".", "a", "deep", "out", "loop", "b.py", "workspace", "", "/"]), max_size=8)
)
def test_a_located_place_is_always_beneath_the_root(tree: Path, context: Context, parts: list[str]) -> None:
    try:
        place = locate(context, "/".join(parts))
    except ToolError:
        return
    assert ".." not in place.parts
    try:
        with open_parent(place) as (parent, _name):
            assert Path(os.readlink(f"/proc/self/fd/{parent}")).is_relative_to(tree.resolve())
    except OSError:
        pass
