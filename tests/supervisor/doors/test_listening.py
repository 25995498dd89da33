"""What needs no daemon; the rest is in tests/contract/cases/test_k12_sockets_and_logs.py."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from supervisor.doors.listening import DoorError, SocketTakenError, open_socket


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)  # a socket's path has 107 bytes, pytest's directories are long
    return "s"


def test_a_socket_is_there_while_the_block_lasts_and_then_gone_with_its_lock(path: str, tmp_path: Path) -> None:
    with open_socket(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        assert sorted(os.listdir(tmp_path)) == ["s", "s.lock"]
    assert os.listdir(tmp_path) == []


def test_the_second_of_two_is_turned_away_and_the_first_goes_on(path: str) -> None:
    with open_socket(path):
        with pytest.raises(SocketTakenError), open_socket(path):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def test_a_killed_daemons_listener_is_closed_before_its_lock_is_free(path: str, tmp_path: Path) -> None:
    """The kernel closes descriptors by number."""
    with open_socket(path) as listener:
        links = {int(name): os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is(name)}
        (lock,) = [number for number, target in links.items() if target == str(tmp_path / "s.lock")]
        assert listener.fileno() < lock


def _is(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_an_error_in_the_block_leaves_nothing_behind(path: str, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), open_socket(path):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("bad", ["x" * 108, "a\0b"])
def test_a_path_that_no_socket_can_have_is_refused(path: str, bad: str) -> None:
    with pytest.raises(DoorError, match="107"), open_socket(bad):
        pass
