"""Guards and their zygote by themselves, against the stand-in of `farside`; and the killer's way with guards."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol import _slots
from protocol._codecs import daemon_to_zygote
from protocol._worker_messages import Reaped, Spawned
from tests.contract.conftest import MARK, alive
from tests.contract.farside import Capture, Killer, Worker, Zygote, children_of, open_killer, open_zygote, readable

pytestmark = pytest.mark.contract
HOG = """
import os, time
full = bytearray(300 << 20)
open(os.environ["TMPDIR"] + "/full", "w").close()
time.sleep(1000)
"""
"""Takes a while to die: killing costs 65 µs per MB."""
CROWD = f"""
for i in 1 2 3; do setsid sleep 1000 & (setsid sleep 1000 &) ; done
setsid python3 -c '{HOG}' &
while [ ! -e $TMPDIR/full ]; do sleep 0.01; done
trap '' TERM
sleep 1000
"""
CROWD_SIZE = 9


class Guarded(Worker):
    """A worker below a guard: ``pidfd`` is the guard's."""

    receipt: int
    bell: int

    def obituary(self) -> Reaped | None:
        """The receipt of a guard that is gone; None: it left none."""
        assert self.gone()
        with contextlib.suppress(BlockingIOError):
            message = daemon_to_zygote().unpack(os.read(self.receipt, 4096)) if _written(self.receipt) else None
            assert message is None or isinstance(message, Reaped)
            return message
        return None


def _written(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))


def spawn(zygote: Zygote, **fields: Any) -> Guarded:
    number = zygote.workers + 1
    scratch = zygote.directory / f"w{number}"
    for path in (scratch, scratch / "tmp", scratch / "work"):
        path.mkdir(0o700)
    output = os.open(scratch / "out", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    receipt, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    ours, theirs = socket.socketpair()
    with theirs:
        message, came = zygote.ask([theirs.fileno(), write_end, bell], scratch=str(scratch), **fields)
    os.close(write_end)
    assert isinstance(message, Spawned), message
    worker = Guarded(zygote, number, ours, came[0], scratch, output, None)
    worker.receipt, worker.bell = receipt, bell
    worker.wait_ready()
    return worker


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    with tempfile.TemporaryDirectory() as directory, open_zygote(Path(directory), held_by="guards") as zygote:
        yield zygote


@pytest.fixture
def busy(zygote: Zygote, mark: str, somebody_alive) -> Guarded:
    """A worker whose command has a crowd below it."""
    worker = spawn(zygote)
    with Capture() as capture:
        arguments = {"argv": ["sh", "-c", CROWD], "env": {MARK: mark}}
        worker.send("shell", arguments, capture.descriptors)
        capture.sent()
        somebody_alive(mark, CROWD_SIZE)
    return worker


def test_a_receipt_comes_when_all_are_gone_and_tells_of_the_worker(busy: Guarded, mark: str):
    assert not _written(busy.receipt)
    pidfds = [os.pidfd_open(int(line.split()[0])) for line in alive(mark)]
    os.eventfd_write(busy.bell, 1)
    told = busy.obituary()
    assert all(readable(pidfd, patience_s=0) for pidfd in pidfds)
    for pidfd in pidfds:
        os.close(pidfd)
    assert (told.worker, told.code, told.signal) == (busy.number, None, signal.SIGKILL)


@pytest.mark.parametrize("gone", ["reader", "zygote", "worker"])
def test_whoever_a_guard_is_there_for_is_gone_and_it_ends_all(busy: Guarded, mark: str, gone: str, nothing_left):
    if gone == "reader":
        os.close(busy.receipt)
    elif gone == "zygote":
        busy.zygote.process.kill()
    else:
        (worker,) = children_of(busy.pid)
        os.kill(worker, signal.SIGSEGV)
    assert busy.gone()
    nothing_left(mark)
    if gone == "worker":
        assert busy.obituary().signal == signal.SIGSEGV


def test_a_killed_guard_leaves_no_receipt_and_the_zygote_says_when_nobody_is_left(busy: Guarded, mark: str):
    pidfds = [os.pidfd_open(int(line.split()[0])) for line in alive(mark)]
    busy.kill()
    assert busy.obituary() is None
    assert busy.reaped().signal == signal.SIGKILL
    assert all(readable(pidfd, patience_s=0) for pidfd in pidfds)
    for pidfd in pidfds:
        os.close(pidfd)


def test_sigterm_to_a_guard_means_its_worker(zygote: Zygote):
    worker = spawn(zygote)
    with Capture() as capture:
        script = "trap 'echo heard; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
        worker.send("shell", {"argv": ["sh", "-c", script]}, capture.descriptors)
        capture.sent()
        while capture.read() != b"ready\n":
            time.sleep(0.002)
        signal.pidfd_send_signal(worker.pidfd, signal.SIGTERM)
        ended = worker.result()
        assert (ended.code, capture.read().splitlines()[-1]) == (3, b"heard")


def test_the_end_of_the_daemons_socket_ends_everybody_and_then_the_zygote(busy: Guarded, mark: str, nothing_left):
    busy.zygote.link.close()
    assert busy.zygote.process.wait(20) == 0
    nothing_left(mark)


def test_even_stopped_guards_end_with_the_daemons_socket(busy: Guarded, mark: str, nothing_left):
    signal.pidfd_send_signal(busy.pidfd, signal.SIGSTOP)
    busy.zygote.link.close()
    assert busy.zygote.process.wait(20) == 0
    nothing_left(mark)


def test_a_request_with_too_few_descriptors_is_refused_and_costs_nothing(zygote: Zygote):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        message, _ = zygote.ask([theirs.fileno()], scratch="/")
    assert message.code == "descriptors"
    assert spawn(zygote).call("python", {"code": "1"}).content == 1


# ---------------------------------------------------------------- the killer


@pytest.fixture
def killer() -> Iterator[Killer]:
    with open_killer() as killer:
        yield killer


@pytest.fixture
def guard() -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """What a killer takes for a guard: a process that does not listen, its pidfd, a bell."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        pidfd, bell = os.pidfd_open(process.pid), os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            yield process, pidfd, bell
        finally:
            process.kill()
            os.close(pidfd)
            os.close(bell)


def register(killer: Killer, pidfd: int, bell: int, flags: int = _slots.GUARDED) -> None:
    killer.words[_slots.slot_base(1) + _slots.GENERATION] = 7
    killer.tell(1 | flags, 7, pidfd, bell)
    assert killer.MESSAGE.unpack(killer.control.recv(64)) == (1 | flags, 7)


def test_at_the_deadline_a_guard_is_rung_and_killed_if_it_does_not_go(killer: Killer, guard):
    process, pidfd, bell = guard
    signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
    register(killer, pidfd, bell)
    killer.arm(1, time.monotonic_ns() + 50_000_000)
    assert killer.wait_word(1, _slots.KILLED)
    assert readable(bell)
    assert process.wait(20) == -signal.SIGKILL


def test_a_guard_that_nobody_can_stand_in_for_is_given_its_time(killer: Killer, guard):
    process, pidfd, bell = guard
    register(killer, pidfd, bell, _slots.GUARDED | _slots.PATIENTLY)
    killer.arm(1, time.monotonic_ns())
    assert readable(bell)
    rung = time.monotonic_ns()
    assert process.wait(20) == -signal.SIGKILL
    assert time.monotonic_ns() - rung > _slots.PATIENT_NS // 2


def test_a_killer_whose_daemon_is_gone_rings_and_kills_too(killer: Killer, guard):
    process, pidfd, bell = guard
    register(killer, pidfd, bell)
    killer.control.close()
    assert readable(bell)
    assert process.wait(20) == -signal.SIGKILL


def test_a_guards_registration_without_a_bell_is_refused(killer: Killer, guard):
    _, pidfd, bell = guard
    killer.tell(1 | _slots.GUARDED, 7, pidfd)
    register(killer, pidfd, bell)  # the first ack is this one's
