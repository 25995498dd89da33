"""Signals without the ``signal`` module, for the processes whose start is counted in milliseconds.

``signal`` loads ``enum`` and turns a hundred constants into members of it: 3 ms of the 20 that ``deadlined exec`` has.
Its functions come from the built-in module ``_signal``; here they get types. Numbers are plain integers, those of every
Linux architecture that a wheel is built for.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed describes `signal` only

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from collections.abc import Iterable

SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGPIPE, SIGTERM = 1, 2, 3, 9, 13, 15
SIGCHLD: int = _signal.SIGCHLD
SIGCONT: int = _signal.SIGCONT
SIGTTOU: int = _signal.SIGTTOU
SIGXFSZ: int = _signal.SIGXFSZ
_CLASSIC = range(1, 32)
SI_KERNEL = 0x80
"""``si_code`` of a signal that the kernel sent by itself: from a terminal's keys, for instance (sigaction(2))."""


def block(numbers: Iterable[int]) -> None:
    """Keep these signals pending until somebody waits for them. Children inherit it: spawn them with an empty mask."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, numbers)


def send_by_pidfd(pidfd: int, number: int) -> None:
    """pidfd_send_signal(2). Raises ProcessLookupError for the dead, PermissionError for another user's."""
    _signal.pidfd_send_signal(pidfd, number)


def wait(numbers: Iterable[int], seconds: float) -> tuple[int, int] | None:
    """The next of these blocked signals as (number, ``si_code``); None when none came within ``seconds``."""
    info = _signal.sigtimedwait(numbers, max(0.0, seconds))
    return None if info is None else (info.si_signo, info.si_code)


def is_ignored(number: int) -> bool:
    """Whether this process was started with the signal ignored, as under nohup(1)."""
    return bool(_signal.getsignal(number) == _signal.SIG_IGN)


def set_default(number: int) -> None:
    """The kernel's own action for a signal."""
    _signal.signal(number, _signal.SIG_DFL)


def state() -> list[object]:
    """Handlers of the classic signals, the mask, whether an alarm is set: to be compared with an earlier state."""
    handlers: list[object] = [_signal.getsignal(number) for number in _CLASSIC]
    return [*handlers, _signal.pthread_sigmask(_signal.SIG_BLOCK, ()), _signal.getitimer(_signal.ITIMER_REAL)[0] > 0]
