"""What a killed command may leave wrong with the caller's terminal and descriptors, and putting it right.

A program that dies by SIGKILL cannot restore what it changed: raw mode, no echo, O_NONBLOCK on a shared description,
the terminal's foreground group. After an exit of its own nothing is touched: ``stty`` must keep its effect.
"""

from __future__ import annotations

import os

from toolworkers import _signals

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import Any

_STANDARD = (0, 1, 2)


def fill_standard_descriptors() -> None:
    """Open /dev/null where the caller closed 0, 1 or 2, or our own pipes would get these numbers. Close-on-exec, so
    that the command finds them closed, as the caller meant."""
    for descriptor in _STANDARD:
        if not _is_open(descriptor):
            os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)  # the lowest free number is this one


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def is_at_terminal() -> bool:
    """Whether 0, 1 or 2 is our controlling terminal. Then the command stays in our process group, so that keys and the
    shell's job control reach it. Else it gets a group of its own: its ``kill 0`` must not hit whoever called us."""
    return any(os.isatty(descriptor) and _foreground_of(descriptor) is not None for descriptor in _STANDARD)


class Terminal:
    """The state of 0, 1 and 2 when it was made; `restore` brings it back. A terminal is ours to restore only while our
    group (or the killed command's, which is empty now) is in its foreground: a call that ran in the background must not
    change the modes under whatever the person works with meanwhile.
    """

    def __init__(self) -> None:
        self._blocking = [(descriptor, os.get_blocking(descriptor)) for descriptor in _STANDARD]
        self._modes = [(descriptor, _modes_of(descriptor)) for descriptor in _STANDARD if _is_in_front(descriptor)]

    def restore(self) -> None:
        """Bring it back. SIGTTOU is blocked: the killed command's group may be in front, and we behind it."""
        for descriptor, blocking in self._blocking:
            os.set_blocking(descriptor, blocking)
        if not self._modes:
            return
        import termios

        _signals.block([_signals.SIGTTOU])
        try:
            for descriptor, modes in self._modes:
                _restore(descriptor, modes)
        except (OSError, termios.error):
            return  # the terminal has gone (hangup): nothing is left to restore


def _is_in_front(descriptor: int) -> bool:
    """Whether this is our controlling terminal and we are its foreground."""
    return os.isatty(descriptor) and _foreground_of(descriptor) == os.getpgrp()


def _foreground_of(terminal: int) -> int | None:
    """The group in a terminal's foreground; None: the terminal is not ours (tcgetpgrp(3))."""
    try:
        return os.tcgetpgrp(terminal)
    except OSError:
        return None


def _modes_of(descriptor: int) -> Any:
    import termios  # only a terminal's caller pays for it

    return termios.tcgetattr(descriptor)


def _restore(descriptor: int, modes: Any) -> None:
    import termios

    front = os.tcgetpgrp(descriptor)
    if front != os.getpgrp():
        if not _is_empty(front):
            return
        os.tcsetpgrp(descriptor, os.getpgrp())
    termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)


def _is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
