from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.private import make_directories, masked, replaceable_by_others


@pytest.fixture(params=[0, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_mask_adds_to_the_umask_and_is_taken_back(umask: int) -> None:
    with masked(0o027):
        inside = os.umask(0)
        os.umask(inside)
    assert inside == umask | 0o027
    assert os.umask(umask) == umask


def test_the_umask_is_taken_back_after_an_error(umask: int) -> None:
    with pytest.raises(ZeroDivisionError), masked(0o077):
        raise ZeroDivisionError
    assert os.umask(umask) == umask


def test_what_is_made_is_private_and_nobody_else_may_write_what_is_above_it(tmp_path: Path, umask: int) -> None:
    make_directories(str(tmp_path / "a" / "b" / "c"))
    assert mode(tmp_path / "a" / "b" / "c") == 0o700
    assert [mode(tmp_path / part) & 0o022 for part in ("a", "a/b")] == [0, 0]


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    make_directories(str(tmp_path / "a"))
    assert mode(tmp_path / "a") == 0o755


@pytest.mark.parametrize(("bits", "open_to_all"), [(0o777, True), (0o707, True), (0o1777, False), (0o770, False)])
def test_a_directory_is_replaceable_where_everybody_may_rename_it(tmp_path: Path, bits: int, open_to_all: bool) -> None:
    own = tmp_path / "above" / "between" / "own"
    own.mkdir(parents=True, mode=0o700)
    (tmp_path / "above").chmod(bits)
    assert replaceable_by_others(str(own)) == (str(tmp_path / "above") if open_to_all else None)


def test_a_link_is_followed_to_where_the_directory_is(tmp_path: Path) -> None:
    (tmp_path / "open" / "own").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "own")
    assert replaceable_by_others(str(tmp_path / "link")) == str(tmp_path / "open")
