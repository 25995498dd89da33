"""The daemon's own directories and its own protection, before anything is started and after everything has ended."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import secrets

from supervisor.trees import remove_tree
from supervisor.zygote_options import is_text

_PR_SET_DUMPABLE = 4
LEAST_DESCRIPTORS = 640
"""Without so many nothing works: a worker moves its own out of the way of the tool's, to 512 and above."""
_OWN_DESCRIPTORS = 128
_DESCRIPTORS_OF_WORKER = 10
"""Socket, pidfd, group, standing file; while a command runs, two pipes and two raw files as well."""
_LOCK = ".lock"
_GONE = ".gone"


class StateError(Exception):
    """The state directory cannot be used; the text says why."""


class TooFewDescriptorsError(Exception):
    """This process may not open as many files as a daemon needs; the text has the numbers."""


def reserve_descriptors(clients: int, workers: int) -> int:
    """Raise the soft RLIMIT_NOFILE as far as so many clients and workers can need, where the hard one lets us.

    Returns the limit that holds now. Raises TooFewDescriptorsError when not even one worker would have room.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OWN_DESCRIPTORS + clients + _DESCRIPTORS_OF_WORKER * workers
    reached = max(soft, min(wanted, hard))
    if reached < LEAST_DESCRIPTORS:
        raise TooFewDescriptorsError(
            f"only {reached} files may be open here, at least {LEAST_DESCRIPTORS} are needed; raise `ulimit -Hn`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
    return reached


def protect_self() -> None:
    """Not dumpable: no tool of the same uid may ptrace the daemon or read its memory and environment (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class StateDirectory:
    """``<state>/<name>/{work,outputs}``, 0700, one per daemon, with ``<name>.lock`` beside it for as long as it lives.

    Whoever has started sweeps: a directory whose lock nobody holds belongs to a daemon that was killed.
    """

    def __init__(self, parent: str, name: str) -> None:
        self.path = os.path.join(parent, name)
        self.work = os.path.join(self.path, "work")
        self.outputs = os.path.join(self.path, "outputs")
        self._lock = -1

    def open(self) -> None:
        """Make the directories, empty. Only the owner of the socket's lock may call this. Raises StateError."""
        parent = os.path.dirname(self.path)
        if not is_text(self.path):  # results name files in it, and neither codec could say them
            raise StateError(f"the state directory {self.path!r} cannot be used: its name is no UTF-8")
        try:
            os.makedirs(parent, mode=0o700, exist_ok=True)
            self._lock = _locked(self.path + _LOCK)
            if os.path.lexists(self.path):
                os.rename(self.path, f"{self.path}.{secrets.token_hex(4)}{_GONE}")
            for directory in (self.path, self.work, self.outputs):
                os.mkdir(directory, 0o700)
        except OSError as error:
            raise StateError(f"the state directory {self.path} cannot be used: {error.strerror}") from error

    def close(self) -> None:
        """Remove everything. Long after many calls: run it in a thread; a sweep finishes what was abandoned."""
        remove_tree(self.path)
        with contextlib.suppress(OSError):  # a tool of our uid may have been here
            os.unlink(self.path + _LOCK)
        os.close(self._lock)

    def sweep(self) -> None:
        """Remove what killed daemons left. May take long: run it in a thread, once the daemon serves."""
        parent = os.path.dirname(self.path)
        for name in os.listdir(parent):
            path = os.path.join(parent, name)
            if name.endswith(_GONE):
                remove_tree(path)
            elif name.endswith(_LOCK):
                with contextlib.suppress(OSError):  # held by a daemon that lives, or gone already
                    lock = _locked(path)
                    remove_tree(path.removesuffix(_LOCK))
                    os.unlink(path)
                    os.close(lock)


def _locked(path: str) -> int:
    """The descriptor of a lock file that is ours now. Raises BlockingIOError while somebody else holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass  # a sweeper removed it between our open and our lock
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
