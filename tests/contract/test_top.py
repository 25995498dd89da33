"""``deadlined top`` in a real terminal, and where there is none."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deadlined import Client
from deadlined.client import CallHandle
from tests.contract.conftest import CommandLine, TestedDaemon

pytestmark = pytest.mark.contract

LEAVES_THE_SCREEN = b"\x1b[?1049l"


@pytest.fixture
def client(standing_daemon: TestedDaemon) -> Iterator[Client]:
    with Client(standing_daemon.socket) as client:
        yield client


def sleeper(client: Client, deadline_ms: int) -> CallHandle:
    return client.submit("shell", {"argv": ["sleep", "300"]}, deadline_ms=deadline_ms)


class Terminal:
    """``deadlined top`` and the person before it."""

    def __init__(self, ours: int, process: subprocess.Popen[str]) -> None:
        self._ours, self.process = ours, process
        self.seen = b""
        self.before = termios.tcgetattr(ours)

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def wait_for(self, text: str) -> None:
        """Until it is painted, in a picture that begins after this."""
        self.seen = b""
        until = time.monotonic() + 30
        while text.encode() not in self.seen:
            assert time.monotonic() < until, f"{text!r} is not in {self.seen!r}"
            self._read()

    def wait(self) -> int:
        until = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < until
            self._read()
        self._read()
        return self.process.returncode

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.1)[0]:
            try:
                self.seen += os.read(self._ours, 65_536)
            except OSError:  # the last writer has gone: pty(7)
                time.sleep(0.01)

    @property
    def settings(self) -> list[object]:
        return termios.tcgetattr(self._ours)


@contextmanager
def top_in_a_terminal(deadlined: CommandLine, rows: int = 24) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, 140, 0, 0))
    deadlined.environment.update(TERM="xterm-256color", COLUMNS="140", LINES=str(rows))
    process = deadlined.start("top", "--every", "100ms", stdin=theirs, stdout=theirs, start_new_session=True)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.communicate()
        os.close(theirs)
        os.close(ours)


def test_it_repaints_until_q_and_leaves_the_terminal_as_it_was(client: Client, deadlined: CommandLine) -> None:
    call = sleeper(client, 100_000)
    with top_in_a_terminal(deadlined) as terminal:
        terminal.wait_for(call.call)
        terminal.wait_for("1 call,")
        call.cancel()
        terminal.wait_for("0 calls")
        terminal.press(b"q")
        assert terminal.wait() == 0
        assert LEAVES_THE_SCREEN in terminal.seen
        assert terminal.settings == terminal.before
        assert terminal.process.stderr is not None
        assert terminal.process.stderr.read() == ""


def test_the_arrows_select_and_k_kills_the_selected_call_alone(client: Client, deadlined: CommandLine) -> None:
    soon, later, last = (sleeper(client, deadline_ms) for deadline_ms in (100_000, 200_000, 300_000))
    with top_in_a_terminal(deadlined) as terminal:
        terminal.wait_for(last.call)
        terminal.press(b"\x1b[B\x1b[B\x1b[A")
        terminal.press(b"k")
        terminal.wait_for("cancelled (operator) after")
        result = later.wait(30)
        assert (result.status, result.reason) == ("cancelled", "operator")
        assert [call.result() for call in (soon, last)] == [None, None]
        terminal.press(b"q")
        assert terminal.wait() == 0
    soon.cancel()
    last.cancel()


def test_more_calls_than_lines_leave_the_selected_one_in_sight(client: Client, deadlined: CommandLine) -> None:
    calls = [sleeper(client, 100_000 + 1_000 * number) for number in range(8)]
    with top_in_a_terminal(deadlined, rows=8) as terminal:
        terminal.wait_for(calls[0].call)
        terminal.press(b"\x1b[B" * 7)
        terminal.wait_for(calls[7].call)
    for call in calls:
        call.cancel()


def test_a_daemon_that_does_not_answer_is_said_and_shown_again_when_it_does(
    deadlined_alone: CommandLine, daemon: TestedDaemon
) -> None:
    with top_in_a_terminal(deadlined_alone) as terminal:
        terminal.wait_for("0 calls")
        os.kill(daemon.pid, signal.SIGSTOP)
        terminal.wait_for("stopped or overloaded")
        os.kill(daemon.pid, signal.SIGCONT)
        with Client(daemon.socket) as client:
            call = sleeper(client, 100_000)
            terminal.wait_for(call.call)
        terminal.press(b"q")
        assert terminal.wait() == 0


def test_when_the_daemon_goes_it_ends_with_one_line_on_a_screen_put_back(
    deadlined_alone: CommandLine, daemon: TestedDaemon
) -> None:
    with top_in_a_terminal(deadlined_alone) as terminal:
        terminal.wait_for("0 calls")
        daemon.private.stop()
        assert terminal.wait() == 125
        assert LEAVES_THE_SCREEN in terminal.seen
        assert terminal.settings == terminal.before
        assert terminal.process.stderr is not None
        said = terminal.process.stderr.read()
        assert said.startswith("deadlined: ")
        assert said.count("\n") == 1


def test_without_a_terminal_it_shows_everything_once(client: Client, deadlined: CommandLine) -> None:
    call = sleeper(client, 100_000)
    done = deadlined("top")
    assert (done.returncode, done.stderr) == (0, "")
    assert call.call in done.stdout
    assert "\x1b" not in done.stdout
    call.cancel()


def test_json_is_one_object_a_line_until_its_reader_goes(client: Client, deadlined: CommandLine) -> None:
    call = sleeper(client, 100_000)
    top = deadlined.start("top", "--json", "--every", "50ms")
    assert top.stdout is not None
    assert top.stderr is not None
    left = []
    for _ in range(3):
        (row,) = [row for row in json.loads(top.stdout.readline())["rows"] if row["call"] == call.call]
        left.append(row["remaining_ms"])
    assert left == sorted(left, reverse=True)
    assert left[0] > left[2]
    top.stdout.close()
    assert (top.wait(30), top.stderr.read()) == (1, "")
    top.stderr.close()
    done = deadlined("top", "--json", "--every", "1ms", "--count", "2")
    assert [set(json.loads(line)) for line in done.stdout.splitlines()] == [{"rows"}, {"rows"}]
    call.cancel()
