"""``deadlined exec`` under signals, stops and terminals: the call ends with its command line, never after it."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract
MARK = "DEADLINED_TEST_MARK"
NothingLeft = Callable[..., None]
Begin = Callable[..., "subprocess.Popen[bytes]"]
SomebodyAlive = Callable[..., list[str]]
SCRIPT = "setsid sleep 1111 & sleep 1111"


@pytest.fixture
def begin(exec_words: list[str], mark: str, somebody_alive: SomebodyAlive) -> Iterator[Begin]:
    """Starts a call and waits until all of it runs: by default a shell and two sleepers, with the command line and the
    first process five. The mark is a word of the command too: of the first process a plain uid sees only the words."""

    def start(*words: str, count: int = 5, command: tuple[str, ...] = ("sh", "-c", SCRIPT)) -> subprocess.Popen[bytes]:
        line = [*exec_words, *words, "--", *command, *([mark] if command[0] == "sh" else [])]
        process = subprocess.Popen(line, env={**os.environ, MARK: mark}, cwd="/", stderr=subprocess.PIPE)
        started.append(process)
        somebody_alive(mark, count)
        return process

    started: list[subprocess.Popen[bytes]] = []
    yield start
    for process in started:
        process.kill()  # nothing to kill after a test that passed
        with process:
            process.wait(30)


def end_of(process: subprocess.Popen[bytes]) -> int:
    with process:
        return process.wait(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_the_command_line_ends_the_call(
    begin: Begin, mark: str, nothing_left: NothingLeft, number: signal.Signals
) -> None:
    process = begin()
    process.send_signal(number)
    assert end_of(process) == 128 + number
    nothing_left(mark)


def test_a_signal_gives_the_grace_and_a_second_one_does_not_wait(
    begin: Begin, mark: str, nothing_left: NothingLeft
) -> None:
    stubborn = ("sh", "-c", "trap '' TERM; sleep 1111 & while :; do sleep 0.05; done")
    process = begin("--term-grace", "9m", count=4, command=stubborn)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGTERM)
    assert end_of(process) == 143
    nothing_left(mark)


def test_a_signal_reaches_the_command_as_a_request_first(begin: Begin, open_directory: Path) -> None:
    tidy = ("sh", "-c", f"trap 'echo clean > {open_directory}/note; exit 3' TERM; sleep 1111 & wait")
    process = begin("--term-grace", "9m", count=4, command=tidy)
    process.send_signal(signal.SIGTERM)
    assert end_of(process) == 143
    assert (open_directory / "note").read_text() == "clean\n"


def test_what_the_caller_ignores_stays_ignored(exec_words: list[str], mark: str, somebody_alive: SomebodyAlive) -> None:
    line = ["nohup", *exec_words, "--deadline", "30s", "--", "sh", "-c", "sleep 0.7; exit 9", mark]
    process = subprocess.Popen(
        line, env={**os.environ, MARK: mark}, cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    somebody_alive(mark, 4)
    process.send_signal(signal.SIGHUP)
    assert end_of(process) == 9


def test_a_killed_command_line_takes_everything_with_it(begin: Begin, mark: str, nothing_left: NothingLeft) -> None:
    process = begin()
    process.kill()
    assert end_of(process) == -signal.SIGKILL
    nothing_left(mark, patience_s=5)


def test_a_stopped_command_line_does_not_stop_the_deadline(begin: Begin, mark: str, exec_words: list[str]) -> None:
    process = begin("--deadline", "900ms")
    process.send_signal(signal.SIGSTOP)
    until = time.monotonic() + 20
    while len(left := [pid for pid in marked_pids(mark) if pid != process.pid]) and time.monotonic() < until:
        time.sleep(0.01)
    assert left == []
    process.send_signal(signal.SIGCONT)
    assert end_of(process) == 124


def test_the_second_line_ends_a_call_whose_first_process_is_stopped(
    begin: Begin, mark: str, nothing_left: NothingLeft
) -> None:
    process = begin("--deadline", "900ms")
    os.kill(first_process_of(process), signal.SIGSTOP)
    with process:
        assert process.wait(30) == 124
        assert process.stderr is not None
        assert b"by the second line" in process.stderr.read()
    nothing_left(mark)


def test_output_that_the_first_process_could_not_move_is_kept(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    late = ("sh", "-c", "sleep 0.5; echo late; sleep 1111")
    process = begin("--deadline", "1500ms", "--max-output", "1MiB", count=4, command=late)
    os.kill(first_process_of(process), signal.SIGSTOP)
    assert end_of(process) == 124
    assert capfd.readouterr().out == "late\n"


def test_a_lost_first_process_is_told_and_nothing_is_left(begin: Begin, mark: str, nothing_left: NothingLeft) -> None:
    process = begin()
    os.kill(first_process_of(process), signal.SIGKILL)
    with process:
        assert process.wait(30) == 125
        assert process.stderr is not None
        assert b"ended from outside" in process.stderr.read()
    nothing_left(mark)


def test_the_command_cannot_end_its_first_process(exec_words: list[str]) -> None:
    script = "kill -TERM 1; kill -INT 1; kill -KILL 1; kill -STOP 1; kill -HUP 1; echo still here; exit 5"
    done = subprocess.run([*exec_words, "--", "sh", "-c", script], capture_output=True, text=True, cwd="/", timeout=30)
    assert (done.returncode, done.stdout) == (5, "still here\n")


def marked_pids(mark: str) -> list[int]:
    """Those with the mark in their environment that are no zombies."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(int(pid))
        except OSError:
            continue
    return found


def first_process_of(process: subprocess.Popen[bytes]) -> int:
    (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(pid)


class OnTerminal:
    """``deadlined exec`` as the foreground job of a terminal of its own."""

    def __init__(self, words: list[str]) -> None:
        self.pid, self.keys = pty.fork()  # a failing test closes the terminal with its process, which ends the call
        if self.pid == 0:
            os.chdir("/")
            os.execvp(words[0], words)
        self.seen = b""

    def wait_for(self, text: bytes) -> None:
        until = time.monotonic() + 20
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self.keys], [], [], 0.1)[0]:
                self.seen += os.read(self.keys, 4096)

    def hang_up(self) -> None:
        os.close(self.keys)
        self.keys = -1

    def end(self) -> int:
        """The exit code; a call that does not end within 20 s is killed and fails the test."""
        until = time.monotonic() + 20
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0] and time.monotonic() < until:
            time.sleep(0.01)
        if not ended[0]:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.keys >= 0:
            os.close(self.keys)
        assert ended[0], self.seen
        return os.waitstatus_to_exitcode(ended[1])


def test_ctrl_c_reaches_the_command_and_ends_it(exec_words: list[str]) -> None:
    terminal = OnTerminal([*exec_words, "--", "sh", "-c", "echo up; exec sleep 1111"])
    terminal.wait_for(b"up")
    os.write(terminal.keys, b"\x03")
    assert terminal.end() == 130


def test_a_command_that_handles_ctrl_c_decides_itself(exec_words: list[str]) -> None:
    script = "trap 'echo caught; exit 4' INT; echo up; while :; do sleep 0.05; done"
    terminal = OnTerminal([*exec_words, "--", "sh", "-c", script])
    terminal.wait_for(b"up")
    os.write(terminal.keys, b"\x03")
    terminal.wait_for(b"caught")
    assert terminal.end() == 4


def test_ctrl_c_is_passed_on_to_a_command_that_left_the_terminal(exec_words: list[str]) -> None:
    script = 'trap "exit 6" INT; echo up; while :; do sleep 0.05; done'
    terminal = OnTerminal([*exec_words, "--", "setsid", "--wait", "sh", "-c", script])
    terminal.wait_for(b"up")
    os.write(terminal.keys, b"\x03")
    assert terminal.end() in (6, 130)


def test_a_kill_gives_the_terminal_back_as_it_was(exec_words: list[str]) -> None:
    terminal = OnTerminal([*exec_words, "--deadline", "1s", "--", "sh", "-c", "stty raw -echo; echo up; sleep 1111"])
    before = termios.tcgetattr(terminal.keys)
    terminal.wait_for(b"up")
    assert termios.tcgetattr(terminal.keys)[3] != before[3]
    terminal.wait_for(b"deadline")
    assert termios.tcgetattr(terminal.keys)[:4] == before[:4]
    assert terminal.end() == 124


def test_a_job_shell_that_is_killed_gives_the_foreground_back(exec_words: list[str]) -> None:
    script = "import os, signal, time; signal.signal(signal.SIGTTOU, signal.SIG_IGN); os.setpgid(0, 0); "
    script += "os.tcsetpgrp(0, os.getpid()); time.sleep(1111)"
    call = shlex.join([*exec_words, "--deadline", "1s", "--", "python3", "-c", script])
    terminal = OnTerminal(["sh", "-c", f"{call}; echo code $?; read answer; echo read $answer"])
    terminal.wait_for(b"code 124")
    os.write(terminal.keys, b"yes\n")
    terminal.wait_for(b"read yes")
    assert terminal.end() == 0


def test_a_call_in_the_background_leaves_the_terminal_alone(exec_words: list[str]) -> None:
    call = shlex.join([*exec_words, "--deadline", "1s", "--", "sleep", "1111"])
    later = "sleep 0.4; stty raw -echo; wait %1; echo code $?; sleep 1111"
    terminal = OnTerminal(["bash", "-c", f"set -m; {call} & {later}"])
    terminal.wait_for(b"code")
    echo = termios.tcgetattr(terminal.keys)[3] & termios.ECHO
    terminal.hang_up()
    assert terminal.end() != 0
    assert not echo


def test_a_terminal_that_hangs_up_ends_the_call(exec_words: list[str], mark: str, nothing_left: NothingLeft) -> None:
    terminal = OnTerminal(["env", f"{MARK}={mark}", *exec_words, "--", "sh", "-c", "echo up; trap '' HUP; sleep 1111"])
    terminal.wait_for(b"up")
    terminal.hang_up()
    assert terminal.end() == 129
    nothing_left(mark)


def test_a_kill_gives_back_blocking_descriptors(exec_words: list[str]) -> None:
    read_end, write_end = os.pipe()
    script = "import fcntl,os,time; os.set_blocking(1, False); time.sleep(1111)"
    words = [*exec_words, "--deadline", "700ms", "--", "python3", "-c", script]
    assert subprocess.run(words, stdout=write_end, stderr=subprocess.DEVNULL, cwd="/", timeout=30).returncode == 124
    assert os.get_blocking(write_end)
    os.close(read_end)
    os.close(write_end)


def test_an_end_that_the_kernel_does_not_confirm_is_told_as_such(
    begin: Begin, mark: str, nothing_left: NothingLeft
) -> None:
    with frozen() as freeze:
        process = begin("--deadline", "1200ms", count=3, command=("sleep", "1111"))
        first = first_process_of(process)
        (command,) = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        freeze(command)
        with process:
            assert process.wait(30) == 124
            assert process.stderr is not None
            said = os.read(process.stderr.fileno(), 4096).decode()  # its end would come with the frozen one's
    assert "NOT confirmed" in said
    assert f"pid {command} (sleep)" in said
    nothing_left(mark, patience_s=5)


@contextmanager
def frozen() -> Iterator[Callable[[str], None]]:
    """A frozen group of the first hierarchy's freezer, whose members SIGKILL cannot end before it is thawed."""
    group = Path(f"/sys/fs/cgroup/freezer/deadlined-test-{os.getpid()}")
    if os.getuid() != 0 or not group.parent.is_dir():
        pytest.skip("needs root and a v1 freezer to make a process that SIGKILL does not end")
    group.mkdir()
    try:
        (group / "freezer.state").write_text("FROZEN")
        yield (group / "cgroup.procs").write_text  # type: ignore[misc]  # the length it returns is nobody's
    finally:
        (group / "freezer.state").write_text("THAWED")
        until = time.monotonic() + 5
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.01)
        group.rmdir()
