"""Keys as they are pressed, from a terminal that is put back as it was."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_AT_ONCE = 1_024


class Keyboard:
    """Reads a terminal; without one (stdin is a file, or closed) nothing is ever typed."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def there(self) -> bool:
        """Whether anything can be typed."""
        return self._descriptor is not None

    def typed(self, until: float) -> bytes:
        """What has been typed, or nothing when ``until`` (of time.monotonic) has come."""
        left_s = max(0.0, until - time.monotonic())
        if self._descriptor is None:
            time.sleep(left_s)
            return b""
        if not select.select([self._descriptor], [], [], left_s)[0]:
            return b""
        data = os.read(self._descriptor, _AT_ONCE)
        if not data:  # the terminal has gone
            self._descriptor = None
        return data


@contextmanager
def open_keyboard() -> Iterator[Keyboard]:
    """Characters come one by one and are not echoed, until the block ends. Ctrl-C stays what it is."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
