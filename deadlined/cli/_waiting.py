"""Waiting for a call at a terminal: the time left to its deadline, and Ctrl-C as a cancel.

The time is shown on stderr, only where that is a terminal and only once the wait is longer than a second.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from deadlined.client import CallHandle
from protocol._outcomes import CallResult
from protocol._quantities import say_duration

TICK_S = 0.1
PATIENCE_S = 1.0
"""How long a wait is before it is worth a line."""
_CLEAR = "\r\x1b[K"


class Interrupts:
    """Ctrl-C while a call is awaited: the first is remembered, the second is a KeyboardInterrupt."""

    def __init__(self) -> None:
        self.seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. It may not talk to the daemon: it runs between any two instructions of the waiter."""
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True


@contextmanager
def open_interrupts() -> Iterator[Interrupts]:
    """Remember Ctrl-C instead of raising it, until the block ends."""
    interrupts = Interrupts()
    before = signal.signal(signal.SIGINT, interrupts)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


class Countdown:
    """The time left, repainted in place."""

    def __init__(self, label: str, remaining_ms: int | None) -> None:
        self._label = label
        self._begun = time.monotonic()
        self._remaining_ms = remaining_ms
        self._shown = ""
        self._terminal = sys.stderr.isatty()

    def tick(self, ending: bool) -> None:
        """Repaint if there is something new to show."""
        passed_s = time.monotonic() - self._begun
        if not self._terminal or (passed_s < PATIENCE_S and not ending):
            return
        text = f"{self._label}: {self._words(passed_s, ending)}"
        if text != self._shown:
            sys.stderr.write(_CLEAR + text)
            sys.stderr.flush()
            self._shown = text

    def clear(self) -> None:
        """Leave the line as it was found."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def _words(self, passed_s: float, ending: bool) -> str:
        if ending:
            return "ending it, waiting until it is gone (Ctrl-C again: do not wait)"
        if self._remaining_ms is None:
            return f"{passed_s:.0f} s"
        left_ms = self._remaining_ms - passed_s * 1000
        return f"{say_duration(left_ms)} left" if left_ms > 0 else "at its deadline"


def wait_for(handle: CallHandle, label: str, remaining_ms: int | None, interrupted: Callable[[], bool]) -> CallResult:
    """The call's result. When ``interrupted`` the call is cancelled and its confirmed end awaited."""
    countdown = Countdown(label, remaining_ms)
    cancelled = False
    try:
        while True:
            try:
                return handle.wait(TICK_S)
            except TimeoutError:
                if interrupted() and not cancelled:
                    cancelled = True
                    handle.cancel()
                countdown.tick(cancelled)
    finally:
        countdown.clear()
