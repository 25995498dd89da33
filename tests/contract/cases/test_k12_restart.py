"""Public reports on a daemon that is stopped, killed, restarted, or out of disk: nothing done is forgotten, nothing is
done twice, no stranger is harmed, and nobody has to clean up by hand."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from deadlined import Client
from deadlined.client import CallHandle
from protocol import CallResult, Delivery, Reason, Status
from supervisor.containment.strays import boot_id, start_ticks
from tests.contract.cases.conftest import wait_until
from tests.trust.daemons import SuiteDaemon
from tests.trust.deaths import OF_A_START

pytestmark = pytest.mark.contract
HANG_MS = 60_000
TAKEN = 75


@pytest.fixture
def place() -> Iterator[Callable[..., SuiteDaemon]]:
    """``place(**settings)``: somewhere for daemons, one after the other."""
    with _places() as make:
        yield make


@contextmanager
def _places() -> Iterator[Callable[..., SuiteDaemon]]:
    made: list[SuiteDaemon] = []

    def make(**settings: object) -> SuiteDaemon:
        made.append(SuiteDaemon(Path(tempfile.mkdtemp(prefix="dl-")), {"shutdown_drain_ms": 50, **settings}))
        return made[-1]

    try:
        yield make
    finally:
        for daemon in made:
            if daemon.process is not None:
                daemon.kill()
            shutil.rmtree(daemon.directory, ignore_errors=True)


def hang_after_effect(daemon: SuiteDaemon, client: Client, name: str, **options: Any) -> CallHandle:
    """A write that has done its work and does not come back."""
    arguments = {"file": str(daemon.directory / "effects"), "name": name, "after_ms": HANG_MS}
    handle = client.submit("trust_effect", arguments, deadline_ms=HANG_MS, **options)
    wait_until(lambda: effects(daemon)[name] == 1, f"{name} did nothing")
    return handle


def effects(daemon: SuiteDaemon) -> Counter[str]:
    path = daemon.directory / "effects"
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def one_call(client: Client) -> CallResult:
    return client.call("shell", {"argv": ["true"]}, deadline_ms=20_000)


# ---------------------------------------------------------------- sockets and strangers


@pytest.mark.case("B067")
def test_a_killed_daemon_is_followed_at_once_and_of_two_starters_one_runs(place: Callable[..., SuiteDaemon]) -> None:
    first, second = place(), place()
    first.start()
    first.kill()
    assert os.path.exists(first.socket)  # what a kill leaves behind
    second.socket = first.socket
    first.begin()
    second.begin()
    ready = {daemon: daemon.wait_ready() for daemon in (first, second)}
    assert sorted(ready.values()) == [False, True]
    (winner,) = [daemon for daemon, won in ready.items() if won]
    (loser,) = [daemon for daemon, won in ready.items() if not won]
    assert loser.reap() == TAKEN
    assert "another" in loser.words()
    with Client(winner.socket) as client:
        assert client.status().pid == winner.pid
        assert one_call(client).status is Status.OK


@pytest.mark.case("B069")
def test_a_stranger_whose_number_lies_in_our_files_is_left_alone(place: Callable[..., SuiteDaemon]) -> None:
    daemon = place()
    daemon.start()
    with Client(daemon.socket) as client:
        hang_after_effect(daemon, client, "one", detach=True)
    daemon.kill()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            _write_everywhere(daemon, stranger.pid)
            daemon.start()
            with Client(daemon.socket) as client:
                assert client.status().pid == daemon.pid
                assert one_call(client).status is Status.OK
            assert daemon.stop() == 0
            assert stranger.poll() is None
        finally:
            stranger.kill()


def _write_everywhere(daemon: SuiteDaemon, pid: int) -> None:
    """The number into every lock, and into the journal's list of workers: of another start, and of another boot."""
    locks = [*daemon.state.glob("*.lock"), *daemon.directory.glob("*.lock"), *daemon.directory.glob("*lock*")]
    assert locks
    for lock in locks:
        lock.write_text(f"{pid}\n")
    (path,) = daemon.state.glob("*/journal.db")
    journal = apsw.Connection(str(path))
    for number, ticks, boot in ((901, start_ticks(pid) - 1, boot_id()), (902, start_ticks(pid), "another-boot")):
        journal.execute("INSERT INTO workers VALUES (1, ?, ?, ?, ?, '[]')", (number, pid, ticks, boot))
    journal.close()


# ---------------------------------------------------------------- stops


@pytest.mark.case("B070")
def test_calls_that_a_stop_interrupts_say_so_before_and_after_the_restart(place: Callable[..., SuiteDaemon]) -> None:
    daemon = place()
    daemon.start()
    with Client(daemon.socket) as client:
        writes = [hang_after_effect(daemon, client, f"write{number}") for number in range(3)]
        reads = [client.submit("trust_sleep", deadline_ms=HANG_MS) for _ in range(2)]
        wait_until(lambda: _busy(client) == 5, "five calls do not run")
        assert daemon.process is not None
        daemon.process.terminate()
        told = {handle.call: handle.wait(20) for handle in (*writes, *reads)}
    assert daemon.reap(20) == 0
    assert {(result.status, result.reason) for result in told.values()} == {(Status.CANCELLED, Reason.SHUTDOWN)}
    assert {told[handle.call].delivery for handle in writes} == {Delivery.UNKNOWN}
    assert [told[handle.call].retryable for handle in (*writes, *reads)] == [False] * 3 + [True] * 2
    daemon.start()
    with Client(daemon.socket) as client:
        assert {call: client.handle(call).wait(5) for call in told} == told
        assert one_call(client).status is Status.OK


def _busy(client: Client) -> int:
    return sum(row.state == "busy" for row in client.processes())


@pytest.mark.case("B076")
def test_a_stop_with_one_place_leaves_records_and_the_place_free(place: Callable[..., SuiteDaemon]) -> None:
    daemon = place(in_flight=1)
    daemon.start()
    with Client(daemon.socket) as client:
        running = hang_after_effect(daemon, client, "running", detach=True)
        queued = client.submit("shell", {"argv": ["true"]}, detach=True, key="queued", deadline_ms=HANG_MS)
    assert daemon.stop() == 0
    daemon.start()
    with Client(daemon.socket) as client:
        assert one_call(client).status is Status.OK
        told = [client.handle(handle.call).wait(5) for handle in (running, queued)]
        assert {result.status for result in told} == {Status.CANCELLED}
        assert {result.reason for result in told} == {Reason.SHUTDOWN}
        assert [result.delivery for result in told] == [Delivery.UNKNOWN, Delivery.NOT_DELIVERED]
        ended = Counter(event.call for event in client.events() if event.kind == "call_ended")
        assert ended[running.call] == ended[queued.call] == 1
        assert client.call("shell", {"argv": ["true"]}, key="queued").status is Status.OK  # nobody had cancelled it


# ---------------------------------------------------------------- kills


@pytest.mark.case("B071")
def test_a_killed_daemons_write_is_unknown_and_never_repeated(place: Callable[..., SuiteDaemon]) -> None:
    daemon = place()
    daemon.start()
    with Client(daemon.socket) as client:
        handle = hang_after_effect(daemon, client, "once", key="k1")
        daemon.kill()  # with its client there: a call ends with whoever asked for it
    daemon.start()
    with Client(daemon.socket) as client:
        found = client.handle(handle.call).wait(5)
        assert (found.status, found.reason) == (Status.UNKNOWN, Reason.DAEMON_RESTARTED)
        assert found.delivery is Delivery.UNKNOWN
        assert not found.retryable
        arguments = {"file": str(daemon.directory / "effects"), "name": "once", "after_ms": HANG_MS}
        again = client.call("trust_effect", arguments, key="k1")
        assert again == msgspec.structs.replace(found, replayed=True)
        assert one_call(client).status is Status.OK  # and had it been queued again, it would have run before this one
    assert effects(daemon) == {"once": 1}


@pytest.mark.case("B079")
def test_killed_at_any_step_of_its_start_it_starts_again(place: Callable[..., SuiteDaemon]) -> None:
    daemon = place()
    daemon.start()
    with Client(daemon.socket) as client:
        handle = hang_after_effect(daemon, client, "once", detach=True)
    daemon.kill()
    for point in OF_A_START:
        daemon.begin(f"dies={point}:1")
        assert not daemon.wait_ready() or point == "after_ready", point
        assert daemon.reap(20) == -signal.SIGKILL, f"{point}: {daemon.words()}"
    daemon.start()
    with Client(daemon.socket) as client:
        assert client.handle(handle.call).wait(5).reason is Reason.DAEMON_RESTARTED
        assert sum(event.kind == "call_ended" and event.call == handle.call for event in client.events()) == 1
        assert one_call(client).status is Status.OK
    assert daemon.stop() == 0


# ---------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(place: Callable[..., SuiteDaemon]) -> Iterator[SuiteDaemon]:
    """A place whose state lies on a file system of six MiB: the log is not given what is left of it."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a small file system")
    daemon = place()
    daemon.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "deadlined-test", daemon.state], check=True)
    try:
        yield daemon
    finally:
        if daemon.process is not None:
            daemon.kill()
        subprocess.run(["umount", "--lazy", daemon.state], check=True)


@pytest.mark.case("B073")
def test_a_full_disk_ends_no_daemon_and_no_deadline_and_room_heals_it(small_disk: SuiteDaemon) -> None:
    daemon = small_disk
    daemon.start()
    filler = daemon.state / "filler"
    with Client(daemon.socket) as client:
        arguments = {"file": str(daemon.directory / "effects"), "name": "before", "after_ms": HANG_MS}
        running = client.submit("trust_effect", arguments, deadline_ms=3_000)
        wait_until(lambda: effects(daemon)["before"] == 1, "the call does not run")
        flood = client.submit("script", {"text": "head -c 20000000 /dev/zero | tr '\\0' x"}, deadline_ms=20_000)
        _fill(filler)
        killed = running.wait(20)
        assert (killed.status, killed.reason) == (Status.KILLED, Reason.TIME_BUDGET)
        assert killed.kill is not None
        assert killed.kill.confirmed
        assert killed.durable is False
        assert [notice for notice in flood.wait(20).notices if notice.detector == "output_lost"]
        refused = _write(daemon, client, "refused")
        assert (refused.status, refused.reason) == (Status.NOT_EXECUTED, Reason.STORE_UNAVAILABLE)
        assert refused.retryable
        assert client.status().degraded
        _make_room(daemon, filler)
        wait_until(lambda: _write(daemon, client, "after").status is Status.OK, "it does not recover")
        assert client.status().pid == daemon.pid
        assert client.handle(running.call).wait(5) == killed
    assert effects(daemon) == {"before": 1, "after": 1}


def _write(daemon: SuiteDaemon, client: Client, name: str) -> CallResult:
    return client.call("trust_effect", {"file": str(daemon.directory / "effects"), "name": name}, deadline_ms=20_000)


def _fill(path: Path) -> None:
    """Take every block that is left."""
    until = time.monotonic() + 0.5  # whoever frees one meanwhile loses it again
    with path.open("ab", buffering=0) as file:
        while time.monotonic() < until:
            with suppress(OSError):
                while True:
                    file.write(bytes(4096))


def _make_room(daemon: SuiteDaemon, filler: Path) -> None:
    filler.unlink()
    for output in daemon.state.glob("*/outputs/*"):
        output.unlink()
