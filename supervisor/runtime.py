"""The daemon's own directories and its own protection, before anything is started and after everything has ended."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat

_PR_SET_DUMPABLE = 4


class StateError(Exception):
    """The state directory cannot be used; the text says why."""


def protect_self() -> None:
    """Not dumpable: no tool of the same uid may ptrace the daemon or read its memory and environment (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class StateDirectory:
    """``<state>/<name>/{work,outputs}``, 0700, one per daemon; what an earlier one of the name left is swept."""

    def __init__(self, parent: str, name: str) -> None:
        self.path = os.path.join(parent, name)
        self.work = os.path.join(self.path, "work")
        self.outputs = os.path.join(self.path, "outputs")

    def open(self) -> None:
        """Make the directories, empty. Only the owner of the socket's lock may call this. Raises StateError."""
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            if os.path.lexists(self.path):
                _remove(self.path)
            for directory in (self.path, self.work, self.outputs):
                os.mkdir(directory, 0o700)
        except OSError as error:
            raise StateError(f"the state directory {self.path} cannot be used: {error.strerror}") from error
        self._check()

    def close(self) -> None:
        """Remove everything."""
        _remove(self.path)

    def _check(self) -> None:
        found = os.lstat(self.path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise StateError(f"the state directory {self.path} is not a directory of ours")


def _remove(path: str) -> None:
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)
