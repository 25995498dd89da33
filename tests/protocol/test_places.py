import os

import pytest

from protocol import _places
from protocol._places import PlaceError, checked_socket, default_socket, default_state_dir, find_socket


def test_the_runtime_directory_comes_first(tmp_path):
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": "/home/u"}
    assert default_socket(environ, os.getuid()) == f"{tmp_path}/deadlined/socket"


def test_another_users_runtime_directory_is_not_used(tmp_path):
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": "/home/u"}
    assert default_socket(environ, os.getuid() + 1) == "/home/u/.local/state/deadlined/run/socket"


@pytest.mark.parametrize("runtime", ["", "relative/dir"])
def test_root_without_a_runtime_directory_has_run(runtime):
    assert default_socket({"XDG_RUNTIME_DIR": runtime, "HOME": "/root"}, 0) == "/run/deadlined/socket"


def test_a_plain_user_never_gets_tmp():
    assert default_socket({"HOME": "/home/u"}, 1234) == "/home/u/.local/state/deadlined/run/socket"
    assert default_socket({"XDG_STATE_HOME": "/s", "HOME": "/home/u"}, 1234) == "/s/deadlined/run/socket"


def test_state_is_the_systems_for_root_and_the_users_own_for_others():
    assert default_state_dir({"DEADLINED_STATE_DIR": "/v", "XDG_STATE_HOME": "/s"}, 0) == "/v"
    assert default_state_dir({"DEADLINED_STATE_DIR": "rel"}, 0) == "/var/lib/deadlined"
    assert default_state_dir({"XDG_STATE_HOME": "/s", "HOME": "/root"}, 0) == "/var/lib/deadlined"
    assert default_state_dir({"XDG_STATE_HOME": "/s", "HOME": "/home/u"}, 1234) == "/s/deadlined"
    assert default_state_dir({"XDG_STATE_HOME": "rel", "HOME": "/home/u"}, 1234) == "/home/u/.local/state/deadlined"


def test_what_was_asked_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("DEADLINED_SOCKET", "/from/environment")
    assert find_socket("/asked") == "/asked"
    assert find_socket() == "/from/environment"


def test_an_empty_variable_counts_as_none(monkeypatch, tmp_path):
    monkeypatch.setenv("DEADLINED_SOCKET", "")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert find_socket() == default_socket()


def test_a_relative_path_becomes_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert find_socket("s") == str(tmp_path / "s")


def test_107_bytes_fit_and_108_are_refused_with_the_limit_named():
    assert len(checked_socket("/" + "x" * 106)) == _places.SOCKET_PATH_LIMIT
    with pytest.raises(PlaceError, match="at most 107 bytes, this one has 108"):
        checked_socket("/" + "x" * 107)


def test_bytes_count_and_not_characters():
    with pytest.raises(PlaceError, match="at most 107"):
        checked_socket("/" + "é" * 54)


@pytest.mark.parametrize("path", ["", "/a\0b"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(PlaceError, match="neither empty nor contain NUL"):
        find_socket(path)
