import io
import os
import signal

import pytest

from deadlined.cli import _waiting
from deadlined.cli._screen import printable
from deadlined.cli._waiting import Countdown, open_interrupts


class _Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.fixture
def painted(monkeypatch):
    """Ticks of a countdown at given seconds → what stderr got."""

    def paint(seconds, remaining_ms=5000, terminal=True, ending=False):
        screen, clock = _Screen(terminal), iter([0.0, *seconds])
        monkeypatch.setattr("sys.stderr", screen)
        monkeypatch.setattr(_waiting.time, "monotonic", lambda: next(clock))
        countdown = Countdown("shell", remaining_ms)
        for _ in seconds:
            countdown.tick(ending)
        countdown.clear()
        return screen.getvalue()

    return paint


def test_a_short_wait_shows_nothing(painted):
    assert painted([0.1, 0.9]) == ""


def test_a_long_wait_shows_the_time_left_in_place_and_clears_it(painted):
    assert painted([1.0, 1.01, 2.0]) == "\r\x1b[Kshell: 4.0 s left\r\x1b[Kshell: 3.0 s left\r\x1b[K"


def test_what_is_no_terminal_is_shown_nothing(painted):
    assert painted([1.0, 10.0], terminal=False) == ""


def test_past_the_deadline_the_time_left_is_not_negative(painted):
    assert "at its deadline" in painted([6.0])


def test_an_unknown_deadline_shows_the_time_passed(painted):
    assert "shell: 3 s" in painted([3.0], remaining_ms=None)


def test_a_cancel_is_said_at_once(painted):
    assert "ending it" in painted([0.1], ending=True)


def test_the_first_interrupt_is_remembered_and_the_second_raised():
    before = signal.getsignal(signal.SIGINT)
    with open_interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.seen
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_no_escape_sequence_survives():
    assert printable("a\x1b[31mb\x9b2Jc\rd\x00\x07e\tf\n\x7fg\x08") == "a[31mb2Jcde\tf\ng"
