"""Tools that misbehave inside the worker's own process: one outcome each, the worker replaced, others untouched."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest

from deadlined import Client
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

CONFIG = '[tool.chaos_noop]\nkind = "python"\nmodule = "toolworkers.chaos"\n'


@pytest.fixture(scope="module")
def chaotic() -> Iterator[TestedDaemon]:
    """A daemon that serves the tools of `toolworkers.chaos`."""
    with open_daemons() as start:
        yield start(CONFIG)


@pytest.fixture
def client(chaotic: TestedDaemon) -> Iterator[Client]:
    with Client(chaotic.socket) as client:
        yield client


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "reasons"),
    [
        ("chaos_exit", {"code": 7}, "crashed", {"worker_lost"}),
        ("chaos_exit", {"code": 0}, "crashed", {"worker_lost"}),
        ("chaos_segfault", {}, "crashed", {"worker_lost"}),
        ("chaos_abort", {}, "crashed", {"worker_lost"}),
        ("chaos_garbage", {"count": 64}, "crashed", {"protocol_error", "worker_lost"}),
        ("chaos_garbage", {"count": 64, "then": "hang"}, "crashed", {"protocol_error", "worker_lost"}),
        ("chaos_half_frame", {}, "killed", {"time_budget"}),
        ("chaos_half_frame", {"then": "return"}, "crashed", {"protocol_error", "worker_lost"}),
        ("chaos_close_descriptors", {}, "crashed", {"protocol_error", "worker_lost"}),
        ("chaos_close_descriptors", {"then": "hang"}, "crashed", {"protocol_error", "worker_lost"}),
        ("chaos_spin", {}, "killed", {"time_budget"}),
        ("chaos_ignore_sigterm", {}, "killed", {"time_budget"}),
        ("chaos_raise", {}, "error", {None}),
        ("chaos_content", {"kind": "deep"}, "error", {None}),
        ("chaos_content", {"kind": "nan"}, "error", {None}),
    ],
)
def test_a_tool_that_breaks_its_worker_gets_one_outcome(client, tool, arguments, status, reasons):
    bystander = client.submit("shell", {"argv": ["sh", "-c", "sleep 0.5; echo alive"]}, deadline_ms=60_000)
    result = client.call(tool, arguments, deadline_ms=1_500)
    assert (result.status, result.reason in reasons) == (status, True), (result.reason, result.error)
    assert result.delivery == ("failed_definite" if status == "error" else "unknown")
    assert bystander.wait().output.view == "alive\n"
    assert client.call("chaos_noop", deadline_ms=30_000).content is True


def test_a_frame_that_a_tool_forged_for_another_call_changes_nothing(client):
    """Ended for nonce 1, long over: a straggler. The call itself goes on."""
    ended = bytes.fromhex("83a26f70a5656e646564a56e6f6e636501a3686f77a26f6b")
    frame = len(ended).to_bytes(4, "big") + ended
    client.call("chaos_noop")
    result = client.call("chaos_say", {"hex": frame.hex()}, deadline_ms=5_000)
    assert result.status in ("ok", "crashed")
    assert client.call("chaos_noop", deadline_ms=30_000).content is True


def test_the_exit_of_a_crash_is_in_the_result(client):
    assert client.call("chaos_exit", {"code": 7}).exit.code == 7
    assert client.call("chaos_segfault").exit.signal == "SIGSEGV"


@pytest.mark.parametrize(("tool", "count"), [("chaos_fork", 3), ("chaos_setsid", 2)])
def test_processes_left_by_a_python_tool_are_killed_and_counted(client, tool, count):
    result = client.call(tool, {"count": count}, deadline_ms=10_000)
    assert (result.status, result.left_processes) == ("ok", count)
    assert [notice.detector for notice in result.notices] == ["left_processes"]


def test_threads_left_are_counted_and_their_worker_is_not_used_again(client):
    result = client.call("chaos_threads", {"count": 2}, deadline_ms=10_000)
    assert (result.status, result.left_threads) == ("ok", 2)
    assert client.call("chaos_noop").left_threads == 0


def test_what_a_python_tool_printed_before_it_hung_is_kept(client):
    result = client.call("chaos_print_then_hang", {"text": "last words"}, deadline_ms=1_000)
    assert result.status == "killed"
    assert "last words" in result.output.view


def test_a_python_tool_that_floods_is_killed_at_its_cap(client):
    result = client.call("chaos_flood", {"mib": 40}, deadline_ms=30_000, max_output_bytes=1 << 20)
    assert (result.status, result.reason) == ("killed", "output_limit")
    assert result.output.truncated
    assert len(result.output.view.encode()) <= 8192


def test_memory_beyond_the_limit_ends_the_tool_and_says_so(start_daemon):
    daemon = start_daemon(CONFIG + "[limits]\nmemory_bytes = 134217728\n")
    with Client(daemon.socket) as client:
        if "memory" not in _limits_of(daemon):
            pytest.skip("this host gives no memory controller to the tests' uid: there is no limit to reach")
        result = client.call("chaos_allocate", {"mib": 400}, deadline_ms=30_000)
        assert (result.status, result.reason) == ("killed", "memory_limit")
        assert client.call("chaos_noop", deadline_ms=30_000).content is True


def _limits_of(daemon: TestedDaemon) -> str:
    """What the daemon said of its controllers when it got ready."""
    return (daemon.directory / "daemon.log").read_text()


def test_a_tool_with_limits_of_its_own_gets_workers_of_its_own(start_daemon):
    daemon = start_daemon(
        '[tool.few]\nkind = "command"\nargv = ["sh", "-c", "ulimit -n"]\n[tool.few.limits]\nopen_files = 64\n'
    )
    with Client(daemon.socket) as client:
        assert client.call("few").output.view == "64\n"
        assert client.call("shell", {"argv": ["sh", "-c", "ulimit -n"]}).output.view == "1024\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may count the descriptors of a daemon that is not dumpable")
def test_a_thousand_calls_leave_no_descriptor_thread_or_child(client, chaotic):
    process = psutil.Process(chaotic.pid)
    client.call("chaos_noop")
    before = process.num_fds(), process.num_threads()
    for _ in range(1_000):
        assert client.call("chaos_noop").content is True
    assert (process.num_fds(), process.num_threads()) <= (before[0] + 8, before[1] + 4)


def test_a_command_beyond_the_memory_limit_is_killed_for_it(start_daemon):
    daemon = start_daemon("[limits]\nmemory_bytes = 134217728\n")
    with Client(daemon.socket) as client:
        if "memory" not in _limits_of(daemon):
            pytest.skip("this host gives no memory controller to the tests' uid: there is no limit to reach")
        eater = "b = bytearray(400 << 20)"
        result = client.call("shell", {"argv": ["python3", "-c", eater]}, deadline_ms=30_000)
        assert (result.status, result.reason) == ("killed", "memory_limit")
        assert client.call("shell", {"argv": ["true"]}).status == "ok"
