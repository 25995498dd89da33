"""Start the daemon's two kinds of helper, killer and zygote: ``python -I -m toolworkers …``. Nothing else is started
from the daemon, and no tool ever is.

By posix_spawn from the main thread: the parent-death signal that both helpers ask for follows the *thread* that forked
(prctl(2)), and a thread of Trio's cache ends after ten idle seconds and would take them with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.containment.kill import kill_by_pidfd

_FIRST_PASSED = 3
_OUT_OF_THE_WAY = 64


@dataclass(slots=True)
class Helper:
    """A started helper: reap it with `reap`, never by number alone."""

    pid: int
    pidfd: int

    def wait_ended(self, seconds: float) -> None:
        """Return when it has ended by itself, or after so long. Blocks."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        poll.poll(seconds * 1_000)

    def kill(self) -> None:
        """SIGKILL, if it still lives. A refusal is its own end's business: all helpers end with their sockets."""
        with contextlib.suppress(PermissionError):
            kill_by_pidfd(self.pidfd)

    def end(self) -> None:
        """Kill it, if it still lives, and reap it. Blocks for the moment that a SIGKILL takes."""
        if self.pidfd >= 0:
            self.kill()
            self.reap()

    def reap(self) -> int | None:
        """Wait for its end; its exit code (negative: a signal). None when it was reaped before."""
        if self.pidfd < 0:
            return None
        os.close(self.pidfd)
        self.pidfd = -1
        with contextlib.suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return None


def launch(role: str, passed: Sequence[int], *arguments: str) -> Helper:
    """Start ``python -I -m toolworkers ROLE 3 4 … ARGUMENTS``, the ``passed`` descriptors being its 3, 4, …

    ``-I``: no PYTHON* variable, no current directory on the path, so that the place a user starts the daemon from can
    add nothing to what runs as a helper. Raises OSError when the interpreter cannot be started.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("helpers start from the main thread only: their parent-death signal follows it")
    numbers = [str(_FIRST_PASSED + index) for index in range(len(passed))]
    argv = [sys.executable, "-I", "-m", "toolworkers", role, *numbers, *arguments]
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for descriptor in passed]
    actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    actions.append((os.POSIX_SPAWN_DUP2, 2, 1))  # the daemon's stdout carries "ready" and nothing else
    actions += [(os.POSIX_SPAWN_DUP2, source, _FIRST_PASSED + index) for index, source in enumerate(moved)]
    try:
        pid = os.posix_spawn(sys.executable, argv, _environment(), file_actions=actions, setsigmask=[], setsid=True)
    finally:
        for descriptor in moved:
            os.close(descriptor)
    return Helper(pid, os.pidfd_open(pid))


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TZ") or name[:3] == "LC_"}
    # Numeric libraries start a thread per core at import; a zygote that forks must have one thread.
    return kept | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
