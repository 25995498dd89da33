"""K04: processes that a kill does not reach: own sessions, other users, other machines, D state, numbers used again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client, _outside
from deadlined._private_daemon import PrivateDaemon
from protocol import CallResult, _slots
from protocol._worker_messages import Call
from supervisor.containment import kill
from supervisor.containment.workers import Worker
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, ROUTES, check_ended, open_daemon_as, wait_until
from tests.contract.conftest import MARK
from tests.contract.test_exec_signals import frozen
from toolworkers._killer import REGISTRATION, Killer
from toolworkers.runners.command import CommandRun

pytestmark = pytest.mark.contract

ASKS = (
    "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(sys.argv[2].encode())"
)
"""A program that has `Elsewhere` begin (x) or end (k) its work."""
CONFIG = f"""
[daemon]
confirm_budget_ms = 300
[tool.delegates]
kind = "command"
argv = ["python3", "-c", {json.dumps(ASKS + "; time.sleep(1111)")}, "{{path}}", "x"]
arguments = {{ path = "str" }}
after_kill = {{ argv = ["python3", "-c", {json.dumps(ASKS)}, "{{path}}", "k"], timeout_ms = "20s" }}
[tool.delegates_in_vain]
kind = "command"
argv = ["sleep", "{FOREVER}"]
after_kill = {{ argv = ["sleep", "{FOREVER}"], timeout_ms = "200ms" }}
[tool.asks_nobody]
kind = "command"
argv = ["sleep", "{FOREVER}"]
remote = false
[tool.only_reads]
kind = "command"
argv = ["sleep", "{FOREVER}"]
read_only = true
[tool.reads_elsewhere]
kind = "command"
argv = ["sleep", "{FOREVER}"]
read_only = true
remote = true
[tool.chaos]
kind = "python"
module = "toolworkers.chaos"
"""
UNKILLABLE = Path(__file__).with_name("case_unkillable.py")
DOUBLE_FORK = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.closerange(0, 3)
    time.sleep({FOREVER})
    os._exit(0)
os.wait()
"""


# ---------------------------------------------------------------- B021


@pytest.mark.case("B021")
@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", f"(setsid sleep {FOREVER} >/dev/null 2>&1 &) ; exit 0"],
        ["sh", "-c", f"setsid -f sleep {FOREVER} </dev/null >/dev/null 2>&1; exit 0"],
        ["sh", "-c", f"(setsid env -i sleep {FOREVER} >/dev/null 2>&1 &) ; exit 0"],
        ["python3", "-c", DOUBLE_FORK],
    ],
    ids=["sh", "setsid -f", "without its environment", "python3"],
)
def test_b021_no_daemon_of_a_call_outlives_it(calls, argv):
    result = calls.run(*argv)
    assert (result.status, result.exit.code, result.left_processes) == ("ok", 0, 1)


@pytest.mark.case("B021")
def test_b021_nor_one_of_a_python_tool(calls):
    result = calls.tool("chaos_daemon", {})
    assert (result.status, result.left_processes) == ("ok", 1)


@pytest.mark.case("B021")
@pytest.mark.parametrize("route", ROUTES)
def test_b021_nor_does_one_whose_call_is_ended(calls, route):
    code = DOUBLE_FORK + f"time.sleep({FOREVER})"
    check_ended(route, calls.end(route, "shell", calls.arguments("python3", "-c", code), count=2))


@pytest.mark.case("B021")
def test_b021_nor_one_of_exec(run_exec, mark, nothing_left):
    done = run_exec("--deadline", "20s", "--", "sh", "-c", f"(setsid sleep {FOREVER} >/dev/null 2>&1 &) ; exit 0")
    nothing_left(mark)
    assert done.returncode == 0


# ---------------------------------------------------------------- B022, B023


@contextmanager
def refused_daemon(python: list[str], config: str) -> Iterator[PrivateDaemon]:
    """A daemon that may kill nobody any more, nor may its killer (see `case_unkillable`)."""
    with open_daemon_as(python, config, str(UNKILLABLE)) as daemon:
        directory = Path(daemon.socket).parent
        (directory / "refuse").touch()
        yield daemon
        family = _outside.tree(daemon.pid)
        daemon.stop()
        assert "Traceback" not in (directory / "daemon.log").read_text()
        wait_until(lambda: not _outside.alive(family), "it left helpers", 5)


@pytest.mark.case("B023")
@pytest.mark.parametrize(
    "refusal", [PermissionError(1, "Operation not permitted"), ProcessLookupError(3, "No such process")]
)
@pytest.mark.parametrize("due", [_slots.DEADLINE, _slots.TERM], ids=["SIGKILL", "SIGTERM"])
def test_b023_a_refused_signal_keeps_none_from_the_others(monkeypatch, refusal, due):
    """The killer's round over three workers that are due, of whom the first and the last are not its to signal."""
    table, signalled = _Table(3), []

    def send(pidfd: int, number: int) -> None:
        signalled.append(pidfd)
        if pidfd != table.pidfds[1]:
            raise refusal

    monkeypatch.setattr(signal, "pidfd_send_signal", send)
    table.make_due(due)
    table.killer.strike()
    assert sorted(signalled) == sorted(table.pidfds)
    if due == _slots.DEADLINE:
        assert table.word(1, _slots.KILLED) != 0


class _Table:
    """A killer in this process, with so many workers registered, each of which is this process."""

    def __init__(self, workers: int) -> None:
        self.words = memoryview(bytearray(_slots.table_bytes(workers))).cast("Q")
        daemon, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.killer = Killer(control, self.words, os.eventfd(0, os.EFD_NONBLOCK))
        for slot in range(workers):
            with open(os.pidfd_open(os.getpid()), closefd=True) as pidfd:
                socket.send_fds(daemon, [REGISTRATION.pack(slot, 1)], [pidfd.fileno()])
            self.words[_slots.slot_base(slot) + _slots.GENERATION] = 1
        self.killer._hear()
        self.pidfds = [self.killer._watched[slot].pidfd for slot in range(workers)]

    def word(self, slot: int, which: int) -> int:
        return self.words[_slots.slot_base(slot) + which]

    def make_due(self, which: int) -> None:
        for slot in range(len(self.pidfds)):
            self.words[_slots.slot_base(slot) + which] = 1


@pytest.mark.case("B023")
@pytest.mark.parametrize("refusal", [PermissionError(1, "Operation not permitted"), ProcessLookupError(3, "No such")])
def test_b023_nor_does_it_end_the_second_line(monkeypatch, refusal):
    def send(_pidfd: int, _number: int) -> None:
        raise refusal

    monkeypatch.setattr(kill, "pidfd_send_signal", send)
    worker = object.__new__(Worker)
    vars(worker).update(pidfd=0, guard=None, shot_ns=0, kill_refused=None)
    worker.kill()
    assert worker.kill_refused == ("Operation not permitted" if refusal.errno == 1 else None)


@pytest.mark.case("B022")
def test_b022_what_may_not_be_killed_is_told_and_named_and_does_not_pile_up(python):
    """Twenty calls that run into their deadlines. Who owns a control group ends it by a write, and needs no signal."""
    config = "[daemon]\nconfirm_budget_ms = 200\n[quarantine]\nleaks = 3\n"
    with refused_daemon(python, config) as daemon, Client(daemon.socket) as client:
        by_group = "cgroup" in client.status().containment
        results = list(_hanging(client, 3 if by_group else 20))
        if by_group:
            assert {(result.status, result.kill.confirmed) for result in results} == {("killed", True)}
            return
        leaked, refused = results[:3], results[3:]
        for result in leaked:
            assert (result.status, result.reason, result.kill.confirmed) == ("killed", "time_budget", False)
            assert (result.kill.survivors != [], result.retryable) == (True, False)
        assert {(result.status, result.reason) for result in refused} == {("not_executed", "poison_call")}
        assert client.status().unconfirmed_kills >= 3  # a worker that nobody needed any more may be among them
        assert any("were killed and are not dead" in why for why in client.status().degraded)
        told = [event.data["survivors"] for event in client.events() if event.kind == "kill_unconfirmed" and event.call]
        assert [[row["pid"] for row in rows] for rows in told] == [[r.pid for r in x.kill.survivors] for x in leaked]
        assert {row["uid"] for rows in told for row in rows} == {_uid_of(daemon.pid)}
        assert client.call("python", {"code": "6 * 7"}, deadline_ms=20_000).content == 42


def _hanging(client: Client, count: int) -> Iterator[CallResult]:
    """So many calls that hang, but for those that found no worker in time on a busy machine."""
    while count:
        result = client.call("shell", {"argv": ["sleep", FOREVER]}, deadline_ms=400)
        if (result.status, result.reason) != ("not_executed", "time_budget"):
            count -= 1
            yield result


def _uid_of(pid: int) -> int:
    return next(
        int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line[:4] == "Uid:"
    )


@pytest.mark.case("B022")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a program that is another user's")
def test_b022_a_setuid_program_gains_nothing_and_ends_like_any_other(
    plain_uid_python, open_directory, mark, nothing_left
):
    """What a plain user's daemon could not kill is never born."""
    program = open_directory / "sleep"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    words = [*plain_uid_python, "-m", "deadlined", "exec", "--deadline", "1s", "--", str(program), FOREVER]
    with subprocess.Popen(words, env={**os.environ, MARK: mark}, cwd="/", stderr=subprocess.DEVNULL) as process:
        assert process.wait(PATIENCE_S) == 124
    nothing_left(mark)


# ---------------------------------------------------------------- B024


@pytest.fixture
def elsewhere(tmp_path) -> Iterator[Elsewhere]:
    """A server that works for whoever asks, whatever becomes of him. It is no process of any call."""
    server = Elsewhere(tmp_path / "s")
    yield server
    server.close()


class Elsewhere:
    """Listens at ``path``; ``asked`` holds a byte for each piece of work it has begun."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked = path, bytearray()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client:
                    self.asked += client.recv(1)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    @property
    def asking(self) -> list[str]:
        """A program that has it work, and waits for an answer that does not come."""
        return ["python3", "-c", f"{ASKS}; time.sleep({FOREVER})", str(self.path), "x"]


@pytest.mark.case("B024")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
def test_b024_work_that_goes_on_elsewhere_is_mentioned_and_not_begun_again(calls, elsewhere, route):
    """On a busy machine the deadline may come before it has asked: the cancel waits until it has."""
    deadline_ms = 800 if route == "deadline" else 60_000
    handle = calls.client.submit("shell", calls.arguments(*elsewhere.asking), deadline_ms=deadline_ms)
    if route == "cancel":
        wait_until(lambda: elsewhere.asked, "it never asked")
        handle.cancel()
    result = handle.wait(PATIENCE_S)
    assert "remote_work_possible" in [notice.detector for notice in result.notices]
    assert (result.delivery, result.retryable) == ("unknown", False)
    assert elsewhere.asked == b"x" if route == "cancel" else len(elsewhere.asked) <= 1


@pytest.mark.case("B024")
@pytest.mark.parametrize(
    ("tool", "mentioned"), [("asks_nobody", False), ("only_reads", False), ("reads_elsewhere", True)]
)
def test_b024_a_contract_may_say_whether_there_is_any(calls, tool, mentioned):
    result = calls.tool(tool, {}, deadline_ms=300)
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert ("remote_work_possible" in [notice.detector for notice in result.notices]) is mentioned


@pytest.mark.case("B024")
def test_b024_a_contract_may_say_how_to_end_it(calls, elsewhere):
    result = calls.tool("delegates", {"path": str(elsewhere.path)}, deadline_ms=800)
    assert (result.status, result.reason, result.delivery) == ("killed", "time_budget", "unknown")
    assert elsewhere.asked.endswith(b"k")
    assert [notice.detector for notice in result.notices] == ["after_kill"]


@pytest.mark.case("B024")
def test_b024_and_is_not_waited_for_longer_than_it_said(calls):
    result = calls.tool("delegates_in_vain", {}, deadline_ms=200)
    (told,) = [notice.text for notice in result.notices if notice.detector == "after_kill"]
    assert "200 ms" in told


@pytest.mark.case("B024")
def test_b024_a_call_that_ended_by_itself_is_not_suspected(calls):
    assert calls.run("true").notices == []


# ---------------------------------------------------------------- B025


@pytest.mark.case("B025")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
def test_b025_who_cannot_be_killed_keeps_nobody_waiting(calls, route):
    """A frozen process stands for one in uninterruptible sleep: SIGKILL waits with it (cgroups-v1 freezer)."""
    with frozen() as freeze:
        deadline_ms = 1_500 if route == "deadline" else 60_000
        watched = calls.begin("shell", calls.arguments("sleep", FOREVER), deadline_ms=deadline_ms)
        freeze(str(watched.pid_of("sleep")))
        if route == "cancel":
            watched.handle.cancel()
        result = watched.handle.wait(PATIENCE_S)
        assert (result.status, result.reason) == {
            "deadline": ("killed", "time_budget"),
            "cancel": ("cancelled", "client"),
        }[route]
        assert (result.kill.confirmed, result.kill.confirmed_after_ms) == (False, None)
        assert result.delivery == "unknown"
        assert calls.client.status().degraded != []
        assert calls.client.call("shell", {"argv": ["true"]}, deadline_ms=20_000).status == "ok"
        assert len(_outside.alive(watched.processes)) >= 1, "it was not frozen: nothing is shown"
    watched.check_gone(PATIENCE_S)
    wait_until(
        lambda: not [row for row in calls.client.status().quarantine if row.kind == "slot"],
        "it is not watched in the background",
    )


@pytest.mark.case("B025")
def test_b025_nor_the_daemons_own_end(start_daemon):
    daemon = start_daemon("[daemon]\nconfirm_budget_ms = 300\nshutdown_drain_ms = 0\n")
    daemon.expected_exit = 70
    with frozen() as freeze, Client(daemon.socket) as client:
        handle = client.submit("shell", {"argv": ["sleep", FOREVER]}, deadline_ms=60_000)
        wait_until(lambda: [p for p in _outside.tree(daemon.pid) if "sleep" in _outside.describe(p)], "no sleep")
        (sleeper,) = [p for p in _outside.tree(daemon.pid) if "sleep" in _outside.describe(p)]
        freeze(str(sleeper.pid))
        daemon.process.send_signal(signal.SIGTERM)
        assert handle.wait(PATIENCE_S).kill.confirmed is False
        assert daemon.process.wait(PATIENCE_S) == 70


# ---------------------------------------------------------------- B026

REUSED = """
import os, socket, subprocess, time
from protocol import _slots
from supervisor.containment.kill import kill_by_pidfd
from toolworkers._killer import REGISTRATION, Killer

def sleeper():
    return subprocess.Popen(["sleep", "1111"], start_new_session=True)

ours = sleeper()
pidfd = os.pidfd_open(ours.pid)
table = memoryview(bytearray(_slots.table_bytes(4))).cast("Q")
daemon, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
killer = Killer(control, table, os.eventfd(0, os.EFD_NONBLOCK))
socket.send_fds(daemon, [REGISTRATION.pack(1, 7)], [pidfd])
killer._hear()
ours.kill()
ours.wait()
for _ in range(1000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(ours.pid - 1))
    stranger = sleeper()
    if stranger.pid == ours.pid:
        break
    stranger.kill()
    stranger.wait()
assert os.getpgid(stranger.pid) == ours.pid, "the number was not given again"
base = _slots.slot_base(1)
table[base + _slots.GENERATION], table[base + _slots.DEADLINE], table[base + _slots.TERM] = 7, 1, 1
killer.strike()
second = kill_by_pidfd(pidfd)
time.sleep(0.05)
print(second, table[base + _slots.KILLED], stranger.poll())
os.killpg(ours.pid, 9)
print(stranger.wait())
"""


@pytest.mark.case("B026")
def test_b026_a_number_that_was_given_again_is_signalled_by_neither_line():
    """In a pid namespace of its own, whose next number can be chosen; a kill by number does hit the stranger there."""
    namespace = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork"]
    words = [*namespace, "--mount-proc", "--kill-child", sys.executable, "-c", REUSED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "False 0 None\n-9\n", done.stderr


@pytest.mark.case("B026")
def test_b026_a_group_is_signalled_only_while_its_leader_is_uncollected(monkeypatch):
    """A grace's SIGTERM is the only signal to a group. A collected leader's number may be anybody's."""
    signalled, at_collection = [], []
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append((group, number)))
    monkeypatch.setattr(CommandRun, "_wait", lambda run, pid, pidfd: run.terminate() or True)
    monkeypatch.setattr(CommandRun, "_finish", lambda run, pid: at_collection.append(run.terminate()))
    descriptors = [os.open("/dev/null", os.O_RDWR) for _ in range(3)]
    run: Any = CommandRun(Call(1, "shell", "{}", 1, "k", 3), None, descriptors, 0)
    leader = os.getpid()
    run._attend(leader)
    run.terminate()
    run.close()
    assert (signalled, at_collection) == ([(leader, signal.SIGTERM)], [None])
