"""The daemon's environment, value by value: what is not asked for is not read."""

from __future__ import annotations

import os

import pytest

from toolworkers import _lent
from toolworkers._lent import LentEnvironment
from toolworkers._world import command_environment, declared_environment, handed_on

HAS = {"PATH": "/bin", "LC_ALL": "C", "TOKEN": "t", "SECRET": "schlüssel", "EMPTY": ""}


@pytest.fixture
def lent() -> LentEnvironment:
    descriptor, places, offset = os.memfd_create("lent"), {}, 0
    for name, value in HAS.items():
        places[name] = (offset, os.write(descriptor, value.encode()))
        offset += places[name][1]
    return LentEnvironment(descriptor, places)


def test_it_is_the_environment(lent: LentEnvironment) -> None:
    assert dict(lent) == HAS
    assert ("TOKEN" in lent, "OTHER" in lent, lent.get("OTHER"), len(lent)) == (True, False, None, 5)
    lent.close()


@pytest.mark.case("B130")
def test_only_what_is_allowed_or_declared_is_ever_read(lent: LentEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Watched(LentEnvironment):
        def __getitem__(self, name: str) -> str:
            read.append(name)
            return super().__getitem__(name)

    watched = Watched(lent._descriptor, lent._places)
    command_environment("/tmp", "/", {}, watched)
    handed_on(watched, ["TOKEN", "NOBODY_HAS_IT"])
    declared_environment(["TOKEN"], watched)
    assert set(read) == {"PATH", "LC_ALL", "TOKEN"}
    watched.close()


def test_once_given_up_nothing_can_be_read(lent: LentEnvironment) -> None:
    lent.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        lent["TOKEN"]
    assert _lent.__doc__
