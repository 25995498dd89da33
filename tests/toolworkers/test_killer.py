"""What can be shown of the killer without shooting at anybody; the rest is in tests/contract."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from protocol import _slots
from toolworkers import _killer
from toolworkers._killer import COUNT_LIMIT, REGISTRATION, Killer, count_processes


class Table:
    """A killer's surroundings, in this process."""

    def __init__(self) -> None:
        self.words = memoryview(bytearray(_slots.table_bytes(4))).cast("Q")
        self.daemon, self.control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.killer = Killer(self.control, self.words, self.bell)


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table()
    yield table
    table.daemon.close()
    table.control.close()
    os.close(table.bell)


def test_with_nothing_armed_it_never_wakes(table: Table) -> None:
    assert table.killer.strike() == _slots.NEVER


def test_a_slot_that_nobody_is_registered_for_is_not_looked_at(table: Table) -> None:
    base = _slots.slot_base(0)
    table.words[base + _slots.GENERATION] = 1
    table.words[base + _slots.DEADLINE] = 1
    assert table.killer.strike() == _slots.NEVER
    assert table.words[base + _slots.KILLED] == 0


def test_it_ends_with_its_socket_and_has_published_and_beaten(table: Table) -> None:
    table.daemon.close()
    table.killer.run()
    assert table.words[_slots.NEXT_WAKE] == _slots.NEVER
    assert table.words[_slots.HEARTBEAT] >= 1


def test_it_wakes_early_enough_to_count_and_then_at_the_deadline(table: Table) -> None:
    pidfd = os.pidfd_open(os.getpid())
    due = time.monotonic_ns() + 3_600 * 10**9  # an hour: this process must not be shot
    base = _slots.slot_base(1)
    table.words[base + _slots.GENERATION] = 5
    table.words[base + _slots.DEADLINE] = due
    socket.send_fds(table.daemon, [REGISTRATION.pack(1, 5)], [pidfd])
    table.daemon.shutdown(socket.SHUT_WR)
    assert table.killer._wait() is False
    assert REGISTRATION.unpack(table.daemon.recv(64)) == (1, 5)
    assert 0 < due - table.killer.strike() < 1_000_000
    table.words[base + _slots.TERM] = due - 10**9
    assert table.killer.strike() == due - 10**9
    table.words[base + _slots.GENERATION] = 6  # another worker's by now: neither SIGTERM nor, overdue, SIGKILL
    table.words[base + _slots.TERM] = table.words[base + _slots.DEADLINE] = 1
    assert table.killer.strike() == _slots.NEVER
    assert table.words[base + _slots.KILLED] == 0
    os.close(pidfd)


def test_a_deadline_stored_while_the_wake_is_published_is_not_slept_over(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon stores after the first look and reads the old, far wake: it does not ring. The second look sees it."""
    hour = 3_600 * 10**9
    early, late = time.monotonic_ns() + hour, time.monotonic_ns() + 2 * hour
    base = _slots.slot_base(0)
    pidfd = os.pidfd_open(os.getpid())
    socket.send_fds(table.daemon, [REGISTRATION.pack(0, 1)], [pidfd])
    os.close(pidfd)
    table.killer._wait()
    table.words[base + _slots.GENERATION] = 1
    table.words[base + _slots.DEADLINE] = late
    timers: list[int] = []

    def stored_meanwhile(_timer: int, instant_ns: int) -> None:
        timers.append(instant_ns)
        table.words[base + _slots.DEADLINE] = early

    monkeypatch.setattr(_killer.sys_, "set_timer", stored_meanwhile)
    table.killer._round()
    assert late - 10**9 < timers[0] < late
    assert early - 10**9 < timers[-1] < early
    assert table.words[_slots.NEXT_WAKE] == timers[-1]


def test_counting_is_bounded_and_never_below_one() -> None:
    later = time.monotonic_ns() + 10**9
    assert count_processes(os.getpid(), later) >= 1
    assert count_processes(1, later) <= COUNT_LIMIT
    assert count_processes(-1, later) == count_processes(0, later) == 1
    assert count_processes(1, 0) == 1


def test_a_kill_is_told_before_it_is_done_and_taken_back_when_nobody_was_there(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its death may be seen before another line of the killer runs; told later it would be read as a crash."""
    killed = _slots.slot_base(0) + _slots.KILLED
    told: list[int] = []

    def send(_pidfd: int, _number: int) -> None:
        told.append(table.words[killed])
        if len(told) > 1:
            raise ProcessLookupError

    monkeypatch.setattr(_killer.signal, "pidfd_send_signal", send)
    for generation in (1, 2):
        pidfd = os.pidfd_open(os.getpid())
        socket.send_fds(table.daemon, [REGISTRATION.pack(0, generation)], [pidfd])
        os.close(pidfd)
        assert table.killer._wait()
        table.words[killed - _slots.KILLED + _slots.GENERATION], table.words[killed] = generation, 0
        table.words[killed - _slots.KILLED + _slots.DEADLINE] = 1
        table.killer.strike()
        assert (table.words[killed] > 0) is (generation == 1)
    assert all(told)


@pytest.mark.case("B023")
@pytest.mark.parametrize("error", [PermissionError, ProcessLookupError, OSError])
def test_a_signal_that_is_refused_keeps_no_other_from_its_worker(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    sent: list[int] = []

    def send(pidfd: int, _number: int) -> None:
        sent.append(pidfd)
        if len(sent) % 2:  # of the first worker, and of its SIGTERM before
            raise error(1, "not yours")

    monkeypatch.setattr(_killer.signal, "pidfd_send_signal", send)
    pidfds = [os.pidfd_open(os.getpid()) for _ in range(2)]
    for slot, pidfd in enumerate(pidfds):
        base = _slots.slot_base(slot)
        table.words[base + _slots.GENERATION] = 1
        socket.send_fds(table.daemon, [REGISTRATION.pack(slot, 1)], [pidfd])
        os.close(pidfd)
        assert table.killer._wait()
        table.words[base + _slots.DEADLINE] = 1
    table.killer.strike()
    assert len(sent) == 2
    killed = [table.words[_slots.slot_base(slot) + _slots.KILLED] for slot in range(2)]
    assert killed[0] == 0, "nobody was killed here: the second line is to try, and to say so"
    assert killed[1] > 0
