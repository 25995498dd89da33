"""The levels below the namespaces: a host that refuses them, made for one daemon only. As root and as a plain uid."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from deadlined import Client
from tests.contract import conftest
from tests.contract.conftest import MARK, TestedDaemon
from tests.contract.lower_levels import CGROUP, GROUP, SUBREAPER, guard_of, helper, open_lower
from tests.contract.test_exec_signals import frozen

pytestmark = pytest.mark.contract
CROWD = (
    "trap '' TERM HUP INT; for i in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 1000 & done;"
    " for i in 1 2 3 4 5; do (setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &); done; sleep 1000"
)
CROWD_SIZE = 21
AS_WHOM = ["own uid", "plain uid"] if os.getuid() == 0 else ["own uid"]


def shell(mark: str, script: str) -> dict[str, Any]:
    return {"argv": ["sh", "-c", script], "env": {MARK: mark}}


def python_of(request: pytest.FixtureRequest, who: str) -> list[str]:
    words: list[str] = [sys.executable] if who == "own uid" else request.getfixturevalue("plain_uid_python")
    return words


@pytest.fixture(scope="module", params=AS_WHOM)
def lower(request: pytest.FixtureRequest) -> Iterator[TestedDaemon]:
    """A daemon at level ``subreaper``."""
    with open_lower(SUBREAPER, python=python_of(request, request.param)) as daemon:
        yield daemon


def processes(mark: str) -> list[psutil.Process]:
    return [psutil.Process(int(line.split()[0])) for line in conftest.alive(mark)]


def test_what_is_reached_is_said_by_the_daemon_and_by_every_result(lower):
    with Client(lower.socket) as client:
        status = client.status()
        result = client.call("shell", {"argv": ["true"]})
    assert status.containment == result.containment == "subreaper"
    assert "no pid namespace" in " ".join(status.containment_why)
    assert (result.status, result.isolation.wanted, result.isolation.achieved) == ("ok", "contain", "limits")
    assert "namespaces" in result.isolation.missing


def test_sessions_daemons_and_deaf_ones_are_gone_when_the_answer_comes(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        for round_of in range(3):
            word = f"{mark}{round_of}"
            result = client.call("shell", shell(word, CROWD), deadline_ms=600)
            nothing_left(word)
            assert (result.status, result.reason) == ("killed", "time_budget")
            assert result.kill.confirmed
            assert result.kill.mechanism == ["subreaper"]


def test_what_outlives_its_command_is_killed_and_counted_before_the_answer(lower, mark, nothing_left):
    script = "setsid sleep 1000 & (setsid sleep 1000 &) ; (sh -c 'trap \"\" TERM; sleep 1000' &) ; exit 7"
    with Client(lower.socket) as client:
        result = client.call("shell", shell(mark, script))
        nothing_left(mark)
    assert result.exit.code == 7
    assert result.left_processes >= 3


def test_what_a_python_tool_leaves_is_killed_and_counted_too(lower, mark, nothing_left):
    code = f"""
import os, subprocess, time
subprocess.Popen(["setsid", "sleep", "1000"], env={{**os.environ, "{MARK}": "{mark}"}})
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "1000"], {{"{MARK}": "{mark}"}})
    os._exit(0)
time.sleep(0.2)
"""
    with Client(lower.socket) as client:
        result = client.call("python", {"code": code})
        nothing_left(mark)
    assert result.left_processes == 2


def test_a_stopped_tool_under_a_stopped_guard_is_killed_on_time(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, "setsid sleep 1000 & kill -STOP $$; sleep 1000"), deadline_ms=1_500)
        somebody_alive(mark, 2)
        guard = guard_of(processes(mark)[0], lower)
        guard.suspend()
        result = call.wait()
        nothing_left(mark)
    assert (result.status, result.kill.confirmed) == ("killed", True)


def test_a_killed_guard_leaves_nobody_and_the_call_is_lost(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, CROWD), deadline_ms=30_000)
        somebody_alive(mark, CROWD_SIZE)
        guard_of(processes(mark)[0], lower).kill()
        result = call.wait()
        nothing_left(mark)
        assert (result.status, result.reason) == ("crashed", "worker_lost")
        assert client.call("shell", {"argv": ["true"]}).status == "ok"


def test_no_answer_comes_while_somebody_is_left_of_a_killed_guard(lower, mark, somebody_alive, nothing_left):
    """The guard is gone, and with it its word; nobody ends what it left, because the zygote is stopped."""
    with Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, CROWD), deadline_ms=1_000)
        somebody_alive(mark, CROWD_SIZE)
        zygote = helper(lower, "zygote")
        guard = guard_of(processes(mark)[0], lower)
        zygote.suspend()
        try:
            guard.kill()
            time.sleep(0.3)
            assert conftest.alive(mark)
            assert call.result() is None
        finally:
            zygote.resume()
        call.wait()
        nothing_left(mark)


def test_guards_killed_one_after_another_neither_leak_nor_stop_the_daemon(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        calls = [client.submit("shell", shell(mark, CROWD), deadline_ms=30_000) for _ in range(4)]
        somebody_alive(mark, 4 * CROWD_SIZE)
        for guard in {guard_of(one, lower) for one in processes(mark)}:
            guard.kill()
        assert {call.wait().status for call in calls} == {"crashed"}
        nothing_left(mark)


def test_a_tool_cannot_signal_its_guard_nor_the_daemon(lower):
    code = """
import os, signal
def try_to(pid):
    try:
        os.kill(pid, signal.SIGSTOP)
    except PermissionError:
        return "refused"
    return "done"
guard = os.getppid()
zygote = int(open(f"/proc/{guard}/stat").read().rpartition(")")[2].split()[1])
[try_to(guard), try_to(zygote)]
"""
    with Client(lower.socket) as client:
        result = client.call("python", {"code": code}, deadline_ms=2_000)
    if "signal_scope" in result.isolation.missing:
        pytest.skip("this kernel has no signal scope (Linux 6.12)")
    assert result.content == ["refused", "refused"]


def test_the_daemon_tells_tools_from_clients_without_namespaces(lower, mark):
    code = f"""
import socket
peer = socket.socket(socket.AF_UNIX); peer.connect({lower.socket!r}); peer.settimeout(5)
try:
    peer.sendall(b'{{"op": "hello", "protocol": 1, "client": "tool"}}\\n')
    said = peer.recv(4096).decode()
except OSError as error:
    said = str(error)
said
"""
    with Client(lower.socket) as client:
        result = client.call("python", {"code": code}, deadline_ms=8_000)
    assert "welcome" not in str(result.content)


def test_a_demand_for_more_than_is_reached_refuses_the_call(lower):
    with Client(lower.socket) as client:
        for demand in ({"min_containment": "pidns"}, {"min_isolation": "contain"}, {"min_containment": "cgroup"}):
            result = client.call("shell", {"argv": ["true"]}, **demand)
            assert (result.status, result.reason) == ("not_executed", "containment")
        allowed = client.call("shell", {"argv": ["true"]}, min_containment="subreaper", min_isolation="limits")
    assert allowed.status == "ok"


def test_a_killed_daemon_takes_all_calls_along(mark, somebody_alive, nothing_left):
    with open_lower(SUBREAPER) as daemon, Client(daemon.socket) as client:
        client.submit("shell", shell(mark, CROWD), deadline_ms=30_000)
        somebody_alive(mark, CROWD_SIZE)
        daemon.expected_exit = None
        os.kill(daemon.pid, signal.SIGKILL)
        nothing_left(mark, patience_s=5)


def test_a_killed_zygote_loses_its_calls_and_leaves_nobody(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, CROWD), deadline_ms=30_000)
        somebody_alive(mark, CROWD_SIZE)
        helper(lower, "zygote").kill()
        assert call.wait().status == "crashed"
        nothing_left(mark)
        assert client.call("shell", {"argv": ["true"]}).status == "ok"


def test_a_killed_killer_is_replaced_in_time_for_the_deadline(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, CROWD), deadline_ms=3_000)
        somebody_alive(mark, CROWD_SIZE)
        helper(lower, "killer").kill()
        result = call.wait()
        nothing_left(mark)
    assert (result.status, result.kill.confirmed) == ("killed", True)


def test_a_stopped_daemon_does_not_stop_the_deadline(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, CROWD), deadline_ms=1_500)
        somebody_alive(mark, CROWD_SIZE)
        os.kill(lower.pid, signal.SIGSTOP)
        try:
            nothing_left(mark, patience_s=10)
        finally:
            os.kill(lower.pid, signal.SIGCONT)
        assert call.wait().status == "killed"


def test_with_the_killer_stopped_the_second_line_ends_even_a_stopped_guard(lower, mark, somebody_alive, nothing_left):
    with Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, CROWD), deadline_ms=1_500)
        somebody_alive(mark, CROWD_SIZE)
        killer = helper(lower, "killer")
        killer.suspend()
        guard_of(processes(mark)[0], lower).suspend()
        result = call.wait()
        nothing_left(mark)
        killer.kill()
    assert (result.status, result.kill.confirmed) == ("killed", True)


def test_level_cgroup_ends_the_group_in_one_step_and_the_rest_by_the_guard(mark, nothing_left):
    with open_lower(CGROUP) as daemon, Client(daemon.socket) as client:
        if client.status().containment != "cgroup":
            pytest.skip("no cgroup v2 that the tests' uid may write to")
        result = client.call("shell", shell(mark, CROWD), deadline_ms=600)
        nothing_left(mark)
    assert (result.status, result.containment) == ("killed", "cgroup")
    assert result.kill.confirmed
    assert "cgroup" in result.kill.mechanism


def test_level_group_ends_what_it_finds_and_says_that_it_is_no_more(mark, somebody_alive, nothing_left):
    """A daemon that has left its session, its group and its parents is found by nobody: the level means that."""
    found, lost = f"{mark}-found", f"{mark}-lost"
    script = (
        f"setsid sleep 1000 & sh -c 'sleep 1000; sleep 1000' & (env {MARK}={lost} setsid sleep 1000 &);"
        " trap '' TERM; sleep 1000"
    )
    with open_lower(GROUP) as daemon:
        with Client(daemon.socket) as client:
            assert client.status().containment == "group"
            call = client.submit("shell", shell(found, script), deadline_ms=1_500)
            somebody_alive(lost)
            result = call.wait()
            nothing_left(found)
            assert (result.status, result.containment, result.kill.mechanism) == ("killed", "group", ["group"])
            (leaked,) = processes(lost)
            leaked.kill()
            after = client.call("shell", shell(found, "sleep 1000 & (sleep 1000 &) ; exit 3"))
            nothing_left(found)
            assert (after.exit.code, after.left_processes) == (3, 2)
        time.sleep(0.05)


CONFIGURED = """
[tool.shell]
isolation = "none"
[tool.script]
isolation = "limits"
"""


@pytest.fixture(scope="module")
def mixed() -> Iterator[TestedDaemon]:
    """An ordinary daemon with tools that want less than it gives."""
    with open_lower("", CONFIGURED) as daemon:
        yield daemon


def test_a_tool_that_wants_less_isolation_gets_it_and_is_killed_all_the_same(mixed, mark, nothing_left):
    with Client(mixed.socket) as client:
        if not client.status().containment.startswith("pidns"):
            pytest.skip("no namespaces here: everything is at a lower level")
        plain = client.call("shell", shell(mark, CROWD), deadline_ms=600)
        nothing_left(mark)
        limited = client.call("script", {"text": "ulimit -n", "interpreter": "sh"})
        contained = client.call("python", {"code": "1"})
    assert (plain.status, plain.kill.confirmed) == ("killed", True)
    assert plain.containment in ("subreaper", "cgroup")
    assert (plain.isolation.wanted, plain.isolation.achieved, plain.isolation.missing) == ("none", "none", [])
    assert (limited.isolation.achieved, limited.output.view.strip()) == ("limits", "1024")
    assert (contained.isolation.achieved, contained.containment[:5]) == ("contain", "pidns")


def test_a_demand_is_judged_by_what_the_tool_gets_and_not_by_what_the_daemon_could(mixed):
    with Client(mixed.socket) as client:
        refused = client.call("shell", {"argv": ["true"]}, min_isolation="contain")
        allowed = client.call("python", {"code": "1"}, min_isolation="contain")
    assert (refused.status, refused.reason) == ("not_executed", "containment")
    assert allowed.status == "ok"


def test_at_isolation_none_a_tool_can_kill_its_guard_and_leaves_nobody_by_it(mixed, mark, nothing_left):
    """Nothing keeps it from that there; what it gains is that its call is lost."""
    script = "setsid sleep 1000 & kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 1000"
    with Client(mixed.socket) as client:
        result = client.call("shell", shell(mark, script), deadline_ms=5_000)
        nothing_left(mark)
    assert (result.status, result.reason) == ("crashed", "worker_lost")


def undead(client: Client) -> list[str]:
    """What the status says of workers that were killed and are not dead."""
    return [row.text for row in client.status().quarantine if row.kind == "slot"]


def test_one_that_sigkill_does_not_end_is_told_as_unconfirmed_and_keeps_nobody_alive(
    lower, mark, somebody_alive, nothing_left
):
    """A frozen process stands for one in uninterruptible sleep. The zygote waits for it, and serves all the same."""
    with frozen() as freeze, Client(lower.socket) as client:
        call = client.submit("shell", shell(mark, CROWD), deadline_ms=1_000)
        somebody_alive(mark, CROWD_SIZE)
        frozen_one = next(one for one in processes(mark) if len(one.children()) > 5)
        freeze(str(frozen_one.pid))
        result = call.wait()
        assert (result.status, result.kill.confirmed) == ("killed", False)
        assert [one.pid for one in processes(mark)] == [frozen_one.pid]
        client.submit("shell", shell(f"{mark}-other", CROWD), deadline_ms=20_000)
        somebody_alive(f"{mark}-other", CROWD_SIZE)
        guard_of(processes(f"{mark}-other")[0], lower).kill()
        nothing_left(f"{mark}-other", patience_s=5)
        assert client.call("shell", {"argv": ["true"]}).status == "ok"
        assert undead(client)
    with Client(lower.socket) as client:
        until = time.monotonic() + 20
        while left := undead(client):
            assert time.monotonic() < until, left
            time.sleep(0.02)
    assert conftest.alive(mark) == []
