"""Where the daemon's socket and its state lie, so that the daemon and every client look in the same place.

Owns the default places and what a socket's path may be. Creates nothing, opens nothing: the door that binds makes the
directory and verifies it. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

SOCKET_VARIABLE = "DEADLINED_SOCKET"
STATE_VARIABLE = "DEADLINED_STATE_DIR"
SOCKET_PATH_LIMIT = 107
"""Bytes of a path that fit ``sockaddr_un.sun_path`` with its closing NUL (unix(7))."""


class PlaceError(ValueError):
    """A socket's path cannot be used; the text says what is allowed."""


def find_socket(asked: str | None = None) -> str:
    """The socket to use: ``asked`` (``--socket``), else ``DEADLINED_SOCKET``, else the default place. An absolute path.

    Raises PlaceError for a path that no socket can have.
    """
    if asked is not None:
        return checked_socket(asked, "--socket")
    from_environment = os.environ.get(SOCKET_VARIABLE)
    if from_environment:
        return checked_socket(from_environment, SOCKET_VARIABLE)
    return checked_socket(default_socket(), "the default place")


def default_socket(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> str:
    """``$XDG_RUNTIME_DIR/deadlined/socket``; without it ``/run/deadlined/socket`` for root and a state directory of the
    user for everybody else. Never ``/tmp``: whoever comes first owns a name there.
    """
    uid = os.geteuid() if uid is None else uid
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and _may_be_ours(runtime, uid):
        return os.path.join(runtime, "deadlined", "socket")
    if uid == 0:
        return "/run/deadlined/socket"
    return os.path.join(_user_state(environ), "deadlined", "run", "socket")


def default_state_dir(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> str:
    """``$DEADLINED_STATE_DIR``; without it ``/var/lib/deadlined`` for root and ``$XDG_STATE_HOME/deadlined``, else
    ``~/.local/state/deadlined``, for everybody else."""
    asked = environ.get(STATE_VARIABLE, "")
    if os.path.isabs(asked):
        return asked
    uid = os.geteuid() if uid is None else uid
    return "/var/lib/deadlined" if uid == 0 else os.path.join(_user_state(environ), "deadlined")


def checked_socket(path: str, origin: str = "the socket") -> str:
    """``path`` made absolute. Raises PlaceError when it is empty, holds a NUL or is too long for a socket."""
    if not path or "\0" in path:
        raise PlaceError(f"{origin}: a socket's path may be neither empty nor contain NUL")
    absolute = os.path.abspath(path)
    size = len(os.fsencode(absolute))
    if size > SOCKET_PATH_LIMIT:
        allowed = f"a socket's path may have at most {SOCKET_PATH_LIMIT} bytes"
        raise PlaceError(f"{origin}: {allowed}, this one has {size}: {_short(absolute)}")
    return absolute


def _user_state(environ: Mapping[str, str]) -> str:
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        return state
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")


def _may_be_ours(directory: str, uid: int) -> bool:
    """False for another user's runtime directory, which ``sudo -E`` and ``su`` leave in the environment."""
    try:
        return os.stat(directory).st_uid == uid
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _short(path: str) -> str:
    return path if len(path) <= 60 else f"{path[:40]}…{path[-15:]}"
