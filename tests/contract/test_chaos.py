"""The misbehaving tools really misbehave: each in a forked child of the test, with a socket for it to spoil."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolworkers import chaos
from toolworkers._context import Context
from toolworkers._registry import Registry, ToolError, to_content

pytestmark = pytest.mark.contract
_ENOUGH_S = 20.0


@pytest.fixture(scope="module")
def registry() -> Registry:
    registry = Registry()
    registry.load_module("toolworkers.chaos")
    return registry


@pytest.fixture
def call(registry: Registry) -> Callable[..., Any]:
    def run(name: str, **arguments: Any) -> Any:
        tool = registry.get(name)
        assert tool is not None
        return tool.call(tool.decode(json.dumps(arguments)), Context(deadline_ns=0, workdir="/"))

    return run


class Victim:
    """A forked child that runs one tool. ``said`` is what it wrote to the socket that a worker would have."""

    def __init__(self, work: Callable[[], object], output: Path) -> None:
        self._near, far = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._be_one(far, work, output)
        far.close()
        self.pidfd = os.pidfd_open(self.pid)
        self._near.settimeout(_ENOUGH_S)

    def _be_one(self, far: socket.socket, work: Callable[[], object], output: Path) -> None:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(far.fileno(), 40)
            os.closerange(3, 40)
            os.closerange(41, 4096)
            sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # as a worker has it
            os.write(40, b"\0")
            work()
            os._exit(0)
        finally:
            os._exit(99)

    def wait_ready(self) -> None:
        assert self._near.recv(1) == b"\0"

    def said(self, count: int) -> bytes:
        heard = b""
        while len(heard) < count and (piece := self._near.recv(count - len(heard))):
            heard += piece
        return heard

    def alive(self) -> bool:
        return not select.select([self.pidfd], [], [], 0)[0]

    def wait_status(self) -> int:
        assert select.select([self.pidfd], [], [], _ENOUGH_S)[0], "still alive"
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        if self.pid:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self._near.close()


@pytest.fixture
def start(call: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[..., Victim]]:
    victims: list[Victim] = []

    def begin(name: str, **arguments: Any) -> Victim:
        victims.append(Victim(lambda: call(name, **arguments), tmp_path / "output"))
        victims[-1].wait_ready()
        return victims[-1]

    yield begin
    for victim in victims:
        victim.end()


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + _ENOUGH_S
    while not holds():
        assert time.monotonic() < until, "never became so"
        time.sleep(0.005)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_ticks(pid: int) -> int:
    return int(_stat(pid)[11])


def test_constant_error_constant_empty_constant_timeout_M005(  # noqa: N802  # the row's id
    call: Callable[..., Any], start: Callable[..., Victim], registry: Registry
) -> None:
    for _ in range(2):
        with pytest.raises(ToolError) as error:
            call("chaos_constant_error")
        assert (str(error.value), error.value.code) == ("the constant error", "constant")
        assert call("chaos_constant_empty") is None
    made = registry.get("chaos_constant_timeout")
    assert made is not None
    hung = start("chaos_constant_timeout")
    time.sleep(2 * made.contract.timeout_ms / 1000)
    assert hung.alive()


def test_the_noop_is_something_and_nothing_more(call: Callable[..., Any]) -> None:
    assert call("chaos_noop") is True


def test_a_heeded_cancel_ends_the_sleep(registry: Registry) -> None:
    ctx = Context(deadline_ns=0, workdir="/")
    ctx.cancel()
    tool = registry.get("chaos_sleep")
    assert tool is not None
    assert tool.call({"ms": 60_000, "heed_cancel": True}, ctx) == "cancelled"
    assert tool.call({"ms": 1, "heed_cancel": False}, ctx) == "slept"


def test_the_spin_runs_no_python_handler(call: Callable[..., Any], tmp_path: Path) -> None:
    """A handler set by Python code runs between two bytecodes; here none comes."""

    def spin() -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
        call("chaos_spin")

    victim = Victim(spin, tmp_path / "output")
    try:
        _wait_until(lambda: _cpu_ticks(victim.pid) > 2)
        signal.pidfd_send_signal(victim.pidfd, signal.SIGTERM)
        ticks = _cpu_ticks(victim.pid)
        _wait_until(lambda: _cpu_ticks(victim.pid) > ticks + 2)
        assert victim.alive()
    finally:
        victim.end()


def test_sigterm_is_ignored(start: Callable[..., Victim]) -> None:
    victim = start("chaos_ignore_sigterm")
    _wait_until(lambda: _ignores(victim.pid, signal.SIGTERM))
    signal.pidfd_send_signal(victim.pidfd, signal.SIGTERM)
    time.sleep(0.05)
    assert victim.alive()


def _ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (number - 1) & 1)


def test_what_was_printed_is_out_before_the_hang(start: Callable[..., Victim], tmp_path: Path) -> None:
    victim = start("chaos_print_then_hang", text="a line")
    _wait_until(lambda: (tmp_path / "output").read_text() == "a line\n")
    assert victim.alive()


def test_the_flood_writes_as_much_as_it_is_told_and_hangs(start: Callable[..., Victim], tmp_path: Path) -> None:
    victim = start("chaos_flood", mib=2)
    _wait_until(lambda: (tmp_path / "output").stat().st_size > 2_000_000)
    assert victim.alive()


def test_memory_is_really_resident(start: Callable[..., Victim]) -> None:
    victim = start("chaos_allocate", mib=40)
    _wait_until(lambda: int(_stat(victim.pid)[21]) * 4096 > 40 << 20)


@pytest.mark.parametrize(("name", "own_session"), [("chaos_fork", False), ("chaos_setsid", True)])
def test_children_outlive_the_call_and_hold_its_socket(call: Callable[..., Any], name: str, own_session: bool) -> None:
    pids = [int(pid) for pid in call(name, count=2).split()]
    try:
        for pid in pids:
            assert _stat(pid)[1] == str(os.getpid())
            if own_session:
                _wait_until(lambda pid=pid: os.getsid(pid) == pid)
            else:
                assert os.getsid(pid) == os.getsid(0)
    finally:
        _end(pids)


def test_a_daemons_grandchild_has_lost_its_parent(start: Callable[..., Victim]) -> None:
    victim = start("chaos_daemon", then="hang")
    session = 0

    def found() -> bool:
        nonlocal session
        for name in os.listdir("/proc"):
            if name.isdigit() and _same_socket(int(name), victim.pid) and int(name) != victim.pid:
                session = int(name)
                return _stat(session)[1] != str(victim.pid)
        return False

    _wait_until(found)
    try:
        assert os.getsid(session) != os.getsid(victim.pid)
    finally:
        descriptor = os.pidfd_open(session)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        assert select.select([descriptor], [], [], _ENOUGH_S)[0]
        os.close(descriptor)


def _same_socket(pid: int, victim: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/40") == os.readlink(f"/proc/{victim}/fd/40") != ""
    except OSError:
        return False


def _end(pids: list[int]) -> None:
    for pid in pids:
        descriptor = os.pidfd_open(pid)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)


def test_threads_are_left(call: Callable[..., Any], tmp_path: Path) -> None:
    def look() -> None:
        call("chaos_threads", count=3)
        os._exit(len(os.listdir("/proc/self/task")))

    victim = Victim(look, tmp_path / "output")
    try:
        assert victim.wait_status() == 4
    finally:
        victim.end()


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("chaos_garbage", {"count": 5}, b"\xff" * 5),
        ("chaos_half_frame", {"then": "return"}, b"\0\0\0d\x81\xa2op"),
        ("chaos_half_frame", {"then": "exit"}, b"\0\0\0d\x81\xa2op"),
        ("chaos_say", {"hex": "00 01ff"}, b"\0\1\xff"),
    ],
)
def test_the_protocol_socket_is_found_and_written_to(
    start: Callable[..., Victim], name: str, arguments: dict[str, Any], said: bytes
) -> None:
    victim = start(name, **arguments)
    assert victim.said(len(said) + 1) == said
    assert victim.wait_status() == (7 if arguments.get("then") == "exit" else 0)


def test_half_a_frame_and_then_silence(start: Callable[..., Victim]) -> None:
    victim = start("chaos_half_frame")
    assert victim.said(8) == b"\0\0\0d\x81\xa2op"
    assert victim.alive()


def test_closing_every_descriptor_reads_as_an_end_of_file(start: Callable[..., Victim]) -> None:
    victim = start("chaos_close_descriptors", then="hang")
    assert victim.said(1) == b""
    assert victim.alive()
    assert os.listdir(f"/proc/{victim.pid}/fd") == []


def test_the_worker_ends_as_it_is_told(start: Callable[..., Victim]) -> None:
    assert start("chaos_exit").wait_status() == 7
    assert start("chaos_exit", code=200).wait_status() == 200
    assert start("chaos_segfault").wait_status() == -signal.SIGSEGV
    assert start("chaos_abort").wait_status() == -signal.SIGABRT


def test_cwd_environment_umask_and_descriptors_are_changed(tmp_path: Path, call: Callable[..., Any]) -> None:
    seen = tmp_path / "seen"

    def look() -> None:
        call("chaos_dirty")
        seen.write_text(f"{os.getcwd()} {os.environ['DEADLINED_CHAOS']} {os.umask(0o22)}")

    victim = Victim(look, tmp_path / "output")
    try:
        assert victim.wait_status() == 0
        assert seen.read_text() == "/ was here 0"
    finally:
        victim.end()


@pytest.mark.parametrize(
    ("kind", "raised"),
    [("ValueError", ValueError), ("TimeoutError", TimeoutError), ("SystemExit", SystemExit),
     ("KeyboardInterrupt", KeyboardInterrupt), ("tool", ToolError)],
)  # fmt: skip
def test_each_kind_of_exception_is_raised(call: Callable[..., Any], kind: str, raised: type[BaseException]) -> None:
    with pytest.raises(raised):
        call("chaos_raise", kind=kind)


@pytest.mark.parametrize("kind", sorted(chaos._UNSAYABLE))
def test_no_kind_of_its_content_can_be_carried(call: Callable[..., Any], kind: str) -> None:
    with pytest.raises(ToolError) as error:
        to_content(call("chaos_content", kind=kind))
    assert error.value.code == "content"


def test_without_a_worker_around_it_the_tool_says_that_there_is_no_socket(
    tmp_path: Path, call: Callable[..., Any]
) -> None:
    def look() -> None:
        os.close(40)
        try:
            call("chaos_garbage")
        except ToolError as error:
            os._exit(5 if error.code == "no_socket" else 6)

    victim = Victim(look, tmp_path / "output")
    try:
        assert victim.wait_status() == 5
    finally:
        victim.end()
