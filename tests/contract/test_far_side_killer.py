"""The killer by itself: a real process over a real table, shooting at processes of these tests only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol import _slots
from tests.contract.farside import Killer, is_alive, open_killer, readable

pytestmark = pytest.mark.contract
CGROUPS = Path("/sys/fs/cgroup")


class Target:
    """A process to be shot at, with its pidfd."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        self.pid = self.process.pid
        self.pidfd = os.pidfd_open(self.pid)

    def gone(self, patience_s: float = 20.0) -> bool:
        return readable(self.pidfd, patience_s)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        os.close(self.pidfd)


@pytest.fixture
def killer(python: list[str]) -> Iterator[Killer]:
    """As the tests' uid, and as a plain one: that one may neither lock memory nor be real-time."""
    with open_killer(python=python, slots=600) as killer:
        yield killer


@pytest.fixture
def own_killer() -> Iterator[Killer]:
    with open_killer() as killer:
        yield killer


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[Callable[..., Target]]:
    """Starts processes that the killer of this test may signal (a plain uid's killer: of that uid)."""
    uid_words: list[str] = []
    if "python" in request.fixturenames and len(request.getfixturevalue("python")) > 1:
        uid_words = request.getfixturevalue("python")[:-1]
    targets: list[Target] = []

    def start(script: str = "exec sleep 600") -> Target:
        targets.append(Target([*uid_words, "sh", "-c", script]))
        return targets[-1]

    yield start
    for one in targets:
        one.close()


def in_ms(milliseconds: float) -> int:
    return time.monotonic_ns() + int(milliseconds * 1_000_000)


def test_a_deadline_is_kept_and_told(killer: Killer, target: Callable[..., Target]) -> None:
    one = target()
    killer.register(3, 7, one.pidfd)
    due = in_ms(100)
    killer.arm(3, due)
    assert one.gone()
    killed = killer.wait_word(3, _slots.KILLED)
    assert killed >= due
    assert killer.word(3, _slots.SEEN) == 1
    assert one.process.wait() == -signal.SIGKILL


def test_who_is_not_overdue_lives(killer: Killer, target: Callable[..., Target]) -> None:
    armed, disarmed, unarmed, victim = (target() for _ in range(4))
    for slot, one in enumerate((armed, disarmed, unarmed, victim)):
        killer.register(slot, 1, one.pidfd)
    killer.arm(0, in_ms(600_000))
    killer.arm(1, in_ms(200))
    killer.arm(1, 0)
    killer.arm(3, in_ms(300))
    assert victim.gone()
    assert not any(one.gone(0) for one in (armed, disarmed, unarmed))
    assert killer.word(1, _slots.KILLED) == 0


def test_the_next_wake_is_published(killer: Killer, target: Callable[..., Target]) -> None:
    one = target()
    assert killer.words[_slots.NEXT_WAKE] in (0, _slots.NEVER)
    killer.register(0, 1, one.pidfd)
    due = in_ms(600_000)
    killer.arm(0, due)
    wait_for(lambda: 0 <= due - killer.words[_slots.NEXT_WAKE] < 1_000_000)  # a moment before it, to count
    killer.arm(0, 0)
    wait_for(lambda: killer.words[_slots.NEXT_WAKE] == _slots.NEVER)


def test_a_deadline_that_is_not_rung_is_kept_when_the_killer_wakes_before_it(
    killer: Killer, target: Callable[..., Target]
) -> None:
    early, late = target(), target()
    killer.register(0, 1, early.pidfd)
    killer.register(1, 1, late.pidfd)
    killer.arm(0, in_ms(200))
    wait_for(lambda: killer.words[_slots.NEXT_WAKE] != _slots.NEVER)
    killer.arm(1, in_ms(400), ring=False)  # later than the published wake: the daemon need not ring
    assert early.gone()
    assert late.gone()


def test_no_deadline_is_lost_between_the_look_and_the_sleep(killer: Killer, target: Callable[..., Target]) -> None:
    """The daemon's side of the rule, at full speed: ring only when the published wake is too late."""
    one = target()
    killer.register(0, 1, one.pidfd)
    base = _slots.slot_base(0)
    for _ in range(3_000):
        killer.words[base + _slots.DEADLINE] = in_ms(600_000)
        os.getppid()  # a system call: the barrier
        if killer.words[base + _slots.DEADLINE] < killer.words[_slots.NEXT_WAKE]:
            os.eventfd_write(killer.bell, 1)
        killer.words[base + _slots.DEADLINE] = 0
    due = in_ms(50)
    killer.words[base + _slots.DEADLINE] = due
    os.getppid()
    if due < killer.words[_slots.NEXT_WAKE]:
        os.eventfd_write(killer.bell, 1)
    assert one.gone()


def test_another_generation_is_not_shot(killer: Killer, target: Callable[..., Target]) -> None:
    one, other = target(), target()
    killer.register(0, 1, one.pidfd)
    killer.words[_slots.slot_base(0) + _slots.GENERATION] = 2
    killer.arm(0, in_ms(1))
    killer.register(1, 1, other.pidfd)
    killer.arm(1, in_ms(200))
    assert other.gone()
    assert not one.gone(0)


def test_an_unregistered_worker_is_not_shot(killer: Killer, target: Callable[..., Target]) -> None:
    one, other = target(), target()
    killer.register(0, 1, one.pidfd)
    killer.unregister(0)
    killer.arm(0, in_ms(1))
    killer.register(1, 1, other.pidfd)
    killer.arm(1, in_ms(200))
    assert other.gone()
    assert not one.gone(0)


def test_a_slot_serves_the_next_worker(killer: Killer, target: Callable[..., Target]) -> None:
    for generation in (1, 2, 3):
        one = target()
        killer.words[_slots.slot_base(0) + _slots.KILLED] = 0
        killer.words[_slots.slot_base(0) + _slots.DEADLINE] = 0
        killer.register(0, generation, one.pidfd)
        killer.arm(0, in_ms(20))
        assert one.gone()
        assert killer.wait_word(0, _slots.KILLED)


def test_sigterm_comes_once_before_and_sigkill_at_the_deadline(killer: Killer, target: Callable[..., Target]) -> None:
    one = target("trap 'echo heard' TERM; echo ready; while :; do sleep 0.01; done")
    assert one.process.stdout.readline() == b"ready\n"
    killer.register(0, 1, one.pidfd)
    killer.arm(0, in_ms(700), term_ns=in_ms(50))
    for _ in range(20):
        os.eventfd_write(killer.bell, 1)
        time.sleep(0.01)
    assert one.gone()
    assert one.process.stdout.read() == b"heard\n"


def test_a_worker_that_was_gone_and_reaped_is_not_reported_killed(
    own_killer: Killer, target: Callable[..., Target]
) -> None:
    one, other = target(), target()
    own_killer.register(0, 1, one.pidfd)
    one.process.kill()
    one.process.wait()
    own_killer.arm(0, in_ms(1))
    own_killer.register(1, 1, other.pidfd)
    own_killer.arm(1, in_ms(100))
    assert own_killer.wait_word(1, _slots.KILLED)
    assert own_killer.word(0, _slots.KILLED) == 0


def test_the_processes_seen_are_counted(own_killer: Killer, target: Callable[..., Target]) -> None:
    one = target("sleep 600 & sleep 600 & (sleep 600 & wait) & echo ready; wait")
    assert one.process.stdout.readline() == b"ready\n"
    wait_for(lambda: len(children(one.pid)) == 3)
    own_killer.register(0, 1, one.pidfd)
    own_killer.arm(0, in_ms(20))
    assert own_killer.wait_word(0, _slots.KILLED)
    assert 1 <= own_killer.word(0, _slots.SEEN) <= 5


def test_five_hundred_deadlines_are_kept(own_killer: Killer) -> None:
    """More slots than processes: a hundred targets stand in five slots each, and every slot is shot."""
    with open_killer(slots=500) as killer:
        targets = [Target(["sleep", "600"]) for _ in range(50)]
        try:
            start = in_ms(300)
            for slot in range(500):
                killer.register(slot, 1, targets[slot % 50].pidfd)
                killer.arm(slot, start + slot * 1_000_000, ring=False)
            os.eventfd_write(killer.bell, 1)
            assert all(one.gone() for one in targets)
            shot = [killer.wait_word(slot, _slots.KILLED) for slot in range(500)]
            assert all(killed >= start + slot * 1_000_000 for slot, killed in enumerate(shot))
        finally:
            for one in targets:
                one.close()


def test_when_the_daemon_goes_everybody_registered_is_killed(killer: Killer, target: Callable[..., Target]) -> None:
    registered, stranger = [target() for _ in range(3)], target()
    for slot, one in enumerate(registered):
        killer.register(slot, 1, one.pidfd)
    killer.control.close()
    assert all(one.gone() for one in registered)
    assert killer.process.wait(20) == 0
    assert not stranger.gone(0)


def test_the_signals_of_a_terminal_do_not_end_it(killer: Killer, target: Callable[..., Target]) -> None:
    one = target()
    killer.register(0, 1, one.pidfd)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(killer.process.pid, number)
    killer.arm(0, in_ms(20))
    assert one.gone()


def test_what_is_no_registration_is_dropped(killer: Killer, target: Callable[..., Target]) -> None:
    one = target()
    killer.tell(0, 1)  # no descriptor
    killer.tell(99_999, 1, one.pidfd)  # no such slot
    killer.control.send(b"short")
    killer.tell(0, 0, one.pidfd)  # an unregister brings none
    killer.register(0, 2, one.pidfd)  # answered: the ones before were not
    killer.arm(0, in_ms(20))
    assert one.gone()


def test_registrations_leave_no_descriptor_behind(killer: Killer, target: Callable[..., Target]) -> None:
    one = target()
    killer.register(0, 1, one.pidfd)
    before = len(os.listdir(f"/proc/{killer.process.pid}/fd"))
    for generation in range(2, 50):
        killer.register(0, generation, one.pidfd)
    killer.tell(0, 1, one.pidfd, one.pidfd, one.pidfd)
    killer.register(1, 1, one.pidfd, one.pidfd)
    killer.unregister(1)
    assert len(os.listdir(f"/proc/{killer.process.pid}/fd")) == before


def test_the_killer_loads_the_standard_library_only() -> None:
    code = "import sys; from toolworkers import _killer; print(sorted(n for n in sys.modules if '.' not in n))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert "msgspec" not in done.stdout
    assert "trio" not in done.stdout


def test_it_kills_on_time_while_the_daemon_is_stopped(target: Callable[..., Target]) -> None:
    """A stand-in daemon that is stopped: what it armed before holds."""
    one = target()
    code = f"""
import os, signal, sys, time
from tests.contract.farside import Killer
killer = Killer()
killer.register(0, 1, os.pidfd_open({one.pid}))
killer.arm(0, time.monotonic_ns() + 300_000_000)
print(killer.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
killer.close()
"""
    root = Path(__file__).resolve().parents[2]
    daemon = subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE)
    try:
        killer_pid = int(daemon.stdout.readline())
        assert one.gone()
        assert is_alive(killer_pid)
        assert state_of(daemon.pid) == "T"
    finally:
        daemon.send_signal(signal.SIGCONT)
        assert daemon.wait(20) == 0
        daemon.stdout.close()


def test_a_cgroup_is_killed_whole(target: Callable[..., Target]) -> None:
    """Also what is no descendant of the worker; only where this host lets us make a version 2 group."""
    root = next((path for path in (CGROUPS, CGROUPS / "unified") if (path / "cgroup.controllers").exists()), None)
    if root is None or not os.access(root, os.W_OK) or os.getuid() != 0:
        pytest.skip("no writable cgroup v2 here")
    group = root / f"deadlined-test-{os.getpid()}"
    group.mkdir()
    try:
        one, stray = target(), target()
        for process in (one, stray):
            (group / "cgroup.procs").write_text(str(process.pid))
        switch = os.open(group / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
        with open_killer() as killer:
            killer.register(0, 1, one.pidfd, switch)
            killer.arm(0, in_ms(20))
            assert one.gone()
            assert stray.gone()
        os.close(switch)
    finally:
        for process in (one, stray):
            process.process.wait()
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
