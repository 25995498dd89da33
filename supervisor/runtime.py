"""The daemon's own directories and its own protection, before anything is started and after everything has ended."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import resource
import secrets
import stat

from supervisor.private import make_directories
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
_STATE_NAME = re.compile(r"[0-9a-f]{16}")
"""What `daemon` calls a daemon's directory: nothing else below the state directory is ever touched."""


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
    """``<state>/<name>/{journal.db,outputs,work}``, 0700, one per daemon, ``<name>.lock`` beside it while it lives.

    Journal and outputs go on from one life to the next; ``work`` is a life's own. Whoever has started sweeps: what of
    other daemons' directories nobody has used for a week goes too.
    """

    def __init__(self, parent: str, name: str) -> None:
        self.path = os.path.join(parent, name)
        self.work = os.path.join(self.path, "work")
        self.outputs = os.path.join(self.path, "outputs")
        self.journal = os.path.join(self.path, "journal.db")
        self._lock = -1

    def open(self) -> None:
        """Make what is missing; ``work`` is empty. For the owner of the socket's lock alone. Raises StateError."""
        parent = os.path.dirname(self.path)
        if not is_text(self.path):  # results name files in it, and neither codec could say them
            raise StateError(f"the state directory {self.path!r} cannot be used: its name is no UTF-8")
        try:
            make_directories(parent)
            _check(parent, private=False)
            self._lock = _locked(self.path + _LOCK)
            self._put_away(self.work)
            for directory in (self.path, self.outputs, self.work):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(directory, 0o700)
                _check(directory, private=True)
        except BlockingIOError as error:
            raise StateError(f"the state directory {self.path} is used by another daemon") from error
        except OSError as error:
            raise StateError(f"the state directory {self.path} cannot be used: {error.strerror}") from error

    def _put_away(self, directory: str) -> None:
        if os.path.lexists(directory):
            os.rename(directory, f"{self.path}.{secrets.token_hex(4)}{_GONE}")

    def close(self) -> None:
        """Remove this life's work. May take long: run it in a thread; a sweep finishes what was abandoned."""
        remove_tree(self.work)
        with contextlib.suppress(OSError):  # a tool of our uid may have been here
            os.unlink(self.path + _LOCK)
        os.close(self._lock)

    def sweep(self, oldest_s: float) -> None:
        """Remove what was put away, killed daemons' work, and all of a daemon that wrote nothing since ``oldest_s``
        (seconds since 1970). May take long: run it in a thread, once the daemon serves."""
        parent = os.path.dirname(self.path)
        for name in os.listdir(parent):
            path = os.path.join(parent, name)
            if name.endswith(_GONE):
                remove_tree(path)
            elif _STATE_NAME.fullmatch(name) and path != self.path:
                with contextlib.suppress(OSError):  # held by a daemon that lives, or gone already
                    _sweep_other(path, oldest_s)


def _sweep_other(path: str, oldest_s: float) -> None:
    lock = _locked(path + _LOCK)
    try:
        journal = os.path.join(path, "journal.db")
        used_s = max(os.stat(file).st_mtime for file in (journal, journal + "-wal", path) if os.path.exists(file))
        remove_tree(path if used_s < oldest_s else os.path.join(path, "work"))
        os.unlink(path + _LOCK)
    finally:
        os.close(lock)


def _check(directory: str, private: bool) -> None:
    """Raises StateError for a directory in which others could put theirs in our files' place."""
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise StateError(f"{directory} is no directory; it is left alone")
    if found.st_uid not in ((os.geteuid(),) if private else (os.geteuid(), 0)):
        raise StateError(f"the state directory {directory} belongs to uid {found.st_uid}, not to us")
    mode = stat.S_IMODE(found.st_mode)
    if mode & (0o077 if private else 0o022) and not (not private and mode & stat.S_ISVTX):
        raise StateError(f"the state directory {directory} is open to others (mode {mode:04o}): chmod 700 it")


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
