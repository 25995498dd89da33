"""What a call may leave in a worker that no process check sees: threads, descriptors, directory, environment, umask,
signal state, search path, files in its own scratch, System V objects.

Owns the comparison with the state the worker began with, and puts back what can be put back. Whether the worker serves
again is decided from the answer elsewhere. It runs after every warm call, so each look is one cheap system call on a
descriptor that is kept open: fstat on /proc/self/task counts threads, on /proc/self/fd counts descriptors (Linux 6.2;
before, the directory is listed).
"""

from __future__ import annotations

import os
import signal
import sys
from _signal import getsignal as _handler_of  # type: ignore[import-not-found]  # signal.getsignal makes 64 enums: 85 µs
from typing import Any, NamedTuple

from toolworkers import _syscalls as sys_
from toolworkers._channel import identity_of

_SIGNALS = range(1, signal.NSIG)
_STANDARD = (0, 1, 2)


class Remains(NamedTuple):
    """What the comparison found: threads over the baseline, and whether everything else is as it was."""

    threads: int
    same: bool


class Scratch:
    """The worker's own directories: ``tmp`` (a tmpfs where the host allows it) and ``work`` (a real directory)."""

    def __init__(self, tmp: str, work: str, tmp_is_private: bool) -> None:
        self.tmp, self.work, self.home = tmp, work, os.path.join(tmp, "home")
        os.makedirs(self.home, 0o700, exist_ok=True)
        self.work_descriptor = _directory(work)
        mounts = (tmp, "/dev/shm") if tmp_is_private else ()  # noqa: S108  # our own mount
        self._mounts = [_directory(path) for path in mounts]
        self._plain = [self.work_descriptor]
        if not tmp_is_private:  # no file system of its own: directories are all there is to look at
            self._plain += [_directory(tmp), _directory(self.home)]
        self._clean = self._look()
        self._system_v = sys_.system_v_objects()

    def untouched(self) -> bool:
        """Whether the files are those the worker began with. (Made and removed again is touched in ``work`` only.)"""
        return self._look() == self._clean and sys_.system_v_objects() == self._system_v

    def _look(self) -> list[Any]:
        free = [os.fstatvfs(mount) for mount in self._mounts]
        plain = [os.fstat(directory) for directory in self._plain]
        return [(f.f_ffree, f.f_bfree) for f in free] + [(p.st_mtime_ns, p.st_nlink) for p in plain]


class Baseline:
    """The state to come back to. Made last before the first call: what is open then is what may be open later."""

    def __init__(self) -> None:
        self._tasks = _directory("/proc/self/task")
        self._open = _directory("/proc/self/fd")
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._path = list(sys.path)
        self._environment = dict(os.environ)
        self._raw_environment = dict(_raw(os.environ))
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._handlers = self._read_handlers()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._threads = os.fstat(self._tasks).st_nlink
        self._standard = [identity_of(descriptor) for descriptor in _STANDARD]
        self._descriptors = self._count_descriptors()

    def output_moved(self) -> None:
        """Descriptors 1 and 2 have been pointed at a new file by the worker itself."""
        self._standard = [identity_of(descriptor) for descriptor in _STANDARD]

    def restore(self, work_descriptor: int) -> Remains:
        """Put directory, umask, environment and search path back; compare the rest."""
        os.fchdir(work_descriptor)
        os.umask(self._umask)
        if _raw(os.environ) != self._raw_environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if sys.path != self._path:
            sys.path[:] = self._path
        threads = max(0, os.fstat(self._tasks).st_nlink - self._threads)
        return Remains(threads, threads == 0 and self._signals_same() and self._descriptors_same())

    def _signals_same(self) -> bool:
        return (
            self._read_handlers() == self._handlers
            and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == self._mask
            and signal.getitimer(signal.ITIMER_REAL)[0] == 0
        )

    def _descriptors_same(self) -> bool:
        """As many as before, and the three that have a meaning still mean it. (`Channel` looks after its own.)"""
        if (sys.stdin, sys.stdout, sys.stderr) != self._streams or self._count_descriptors() != self._descriptors:
            return False
        try:
            return [identity_of(descriptor) for descriptor in _STANDARD] == self._standard
        except OSError:
            return False

    def _count_descriptors(self) -> int:
        # In /proc a directory's size is 0, except here since Linux 6.2; listing it costs three times as much.
        return os.fstat(self._open).st_size or len(os.listdir(self._open))

    @staticmethod
    def _read_handlers() -> list[Any]:
        return list(map(_handler_of, _SIGNALS))


def _raw(environment: Any) -> dict[bytes, bytes]:
    """The bytes behind ``os.environ``: comparing them decodes nothing (1 µs, not 50)."""
    raw: dict[bytes, bytes] = environment._data
    return raw


def _directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
