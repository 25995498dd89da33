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


class Terminal:
    """The state of 0, 1 and 2 when it was made; `restore` brings it back."""

    def __init__(self) -> None:
        self._blocking = [(descriptor, os.get_blocking(descriptor)) for descriptor in _STANDARD]
        self._modes: list[tuple[int, Any]] = []
        self._foreground: tuple[int, int | None] = (0, None)
        for descriptor in _STANDARD:
            if os.isatty(descriptor):
                self._remember(descriptor)

    def _remember(self, descriptor: int) -> None:
        import termios  # only a terminal's caller pays for it

        self._modes.append((descriptor, termios.tcgetattr(descriptor)))
        self._foreground = (descriptor, _foreground_of(descriptor))

    def restore(self) -> None:
        """Bring it back. SIGTTOU is blocked: we may be in the background, with the killed command's group in front."""
        for descriptor, blocking in self._blocking:
            os.set_blocking(descriptor, blocking)
        if not self._modes:
            return
        import termios

        _signals.block([_signals.SIGTTOU])
        try:
            descriptor, group = self._foreground
            if group is not None:
                os.tcsetpgrp(descriptor, group)
            for descriptor, modes in self._modes:
                termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)
        except (OSError, termios.error):
            return  # the terminal has gone (hangup): nothing is left to restore


def _foreground_of(descriptor: int) -> int | None:
    """None: a terminal, but not the controlling one; it has no foreground group for us."""
    try:
        return os.tcgetpgrp(descriptor)
    except OSError:
        return None
