"""What a call may leave in a worker that no process check sees: threads, descriptors, directory, environment, umask,
signal state, user, locale, search path; files in its own scratch, System V objects.

Owns the comparison with the state the worker began with, and puts back what can be put back. Whether the worker serves
again is decided from the answer elsewhere. All of this runs after every warm call, so each look is one cheap system
call, on a descriptor that is kept open: fstat on /proc/self/task counts threads, on /proc/self/fd counts descriptors.
"""

from __future__ import annotations

import _locale  # the C library's own word: `locale` reads aliases and costs the cold start
import contextlib
import fcntl
import os
import resource
import sys
from typing import Any, NamedTuple

from toolworkers import _signals
from toolworkers import _syscalls as sys_

OUT_OF_THE_WAY = 512
"""Where a worker's own descriptors lie: a tool that closes what it does not know starts below."""


class Remains(NamedTuple):
    """What the comparison found: threads over the baseline, and whether everything else is as it was."""

    threads: int
    same: bool


class Scratch:
    """The worker's own directories: ``tmp`` (a tmpfs where the host allows it) and ``work`` (a real directory)."""

    def __init__(self, tmp: str, work: str, tmp_is_private: bool) -> None:
        self.tmp, self.work, self.home = tmp, work, os.path.join(tmp, "home")
        with contextlib.suppress(FileExistsError):  # where tmp is a directory on disk it may be an old one
            os.mkdir(self.home, 0o700)
        self.work_descriptor = _directory(work)
        mounts = (tmp, "/dev/shm") if tmp_is_private else ()  # noqa: S108  # our own mount
        self._mounts = [_directory(path) for path in mounts]
        self._plain = [self.work_descriptor]
        if not tmp_is_private:  # no file system of its own: directories are all there is to look at
            self._plain += [_directory(tmp), _directory(self.home)]
        self._clean = self._look()
        self._system_v = sys_.system_v_objects()

    def untouched(self, system_v: bool) -> bool:
        """Whether the files are those the worker began with, and (5 µs more) the System V objects.

        What was made and removed again is a touch in ``work`` only.
        """
        return self._look() == self._clean and (not system_v or sys_.system_v_objects() == self._system_v)

    def _look(self) -> list[float]:
        looks: list[float] = []
        for mount in self._mounts:
            free = os.fstatvfs(mount)
            looks += (free.f_ffree, free.f_bfree)
        for directory in self._plain:
            looks.append(os.fstat(directory).st_ctime_ns)  # entries, mode, owner: whatever changes moves it
        return looks


class Baseline:
    """The state to come back to. Made last before the first call: what is open then is what may be open later.

    ``last_words``: a descriptor that is closed once nothing can go wrong any more.
    """

    def __init__(self, last_words: int) -> None:
        self._tasks = _directory("/proc/self/task")
        self._open = _directory("/proc/self/fd")
        self._null, self._output = _keep(0), _keep(1)
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._path = list(sys.path)
        self._environment = dict(os.environ)
        self._raw_environment = dict(_raw(os.environ))
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._signals = _signals.state()
        self._users = os.getresuid(), os.getresgid()
        self._locale = _locale.setlocale(_locale.LC_ALL)
        self._threads = os.fstat(self._tasks).st_nlink
        os.close(last_words)
        self._descriptors = self._count_descriptors()

    def close(self) -> None:
        """Give up its own descriptors."""
        for descriptor in (self._tasks, self._open, self._null, self._output):
            os.close(descriptor)

    def take_output(self, descriptor: int) -> None:
        """Point 1 and 2 at another file, for good; ``descriptor`` itself is closed."""
        os.dup2(descriptor, self._output, inheritable=False)
        os.close(descriptor)
        self._redirect()

    def lend_output(self, out: int, err: int) -> None:
        """Point 1 and 2 at these until `take_back_output`."""
        os.dup2(out, 1)
        os.dup2(err, 2)

    def take_back_output(self) -> None:
        """Point 1 and 2 at the standing file again."""
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)

    def restore(self, work_descriptor: int) -> Remains:
        """Put directory, umask, environment, search path and 0, 1, 2 back; compare the rest."""
        back = _went_to(work_descriptor)
        os.umask(self._umask)
        if _raw(os.environ) != self._raw_environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if sys.path != self._path:
            sys.path[:] = self._path
        threads = os.fstat(self._tasks).st_nlink - self._threads
        same = (
            back
            and threads == 0
            and self._count_descriptors() == self._descriptors
            and _signals.state() == self._signals
            and (os.getresuid(), os.getresgid()) == self._users
            and _locale.setlocale(_locale.LC_ALL) == self._locale
            and (sys.stdin, sys.stdout, sys.stderr) == self._streams
        )
        self._redirect()
        return Remains(max(0, threads), same)

    def _redirect(self) -> None:
        os.dup2(self._null, 0)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)

    def _count_descriptors(self) -> int:
        # In /proc a directory's size is 0, except here since Linux 6.2; listing it costs three times as much.
        return os.fstat(self._open).st_size or len(os.listdir(self._open))


def _went_to(directory: int) -> bool:
    """A call may have taken away its own right to enter its directory, or the process's."""
    try:
        os.fchdir(directory)
    except OSError:
        return False
    return True


def _raw(environment: Any) -> dict[bytes, bytes]:
    """The bytes behind ``os.environ``: comparing them decodes nothing (1 µs, not 50)."""
    raw: dict[bytes, bytes] = environment._data
    return raw


def _directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _keep(descriptor: int) -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(OUT_OF_THE_WAY, most // 2))
