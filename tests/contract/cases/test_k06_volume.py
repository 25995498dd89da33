"""Public cases, chapter K06: output volume, memory, descriptors, process counts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deadlined import Client
from protocol._errors import InvalidArguments
from tests.contract.conftest import MARK, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

MIB = 1 << 20
ENOUGH_MS = 20_000
"""A deadline that is not what is tested: a machine under load must not reach it."""
CONFIG = (
    '[quarantine]\npoison_losses = "none"\nserial_keys = "none"\nbreaker_keys = "none"\n'
    f'[tool.case_tools]\nkind = "python"\nmodule = "case_tools"\npath = ["{os.path.dirname(__file__)}"]\n'
)
"""What is killed here from outside is none of the tools' doing, and not to be held against them."""


def goes_on(client: Client) -> None:
    result = client.call("shell", {"argv": ["echo", "served"]}, deadline_ms=ENOUGH_MS)
    assert (result.status, result.output.view) == ("ok", "served\n")


# ---------------------------------------------------------------- B033


@pytest.mark.case("B033")
@pytest.mark.parametrize("split", [False, True], ids=["one pipe", "two pipes"])
@pytest.mark.parametrize(("out", "err"), [(70_000, 70_000), (0, 3_000_000), (3_000_000, 3_000_000)])
def test_b033_a_program_that_fills_both_pipes_ends_by_itself(client, split, out, err):
    code = f"import sys; sys.stdout.write('x'*{out}); sys.stderr.write('y'*{err})"
    handle = client.submit("shell", {"argv": ["python3", "-c", code]}, deadline_ms=ENOUGH_MS, split_streams=split)
    result = handle.wait()
    assert (result.status, result.exit.code, result.output.bytes) == ("ok", 0, out + err)
    streams = ("stdout", "stderr") if split else ("both",)
    raw = b"".join(b"".join(handle.output(stream=stream)) for stream in streams)
    assert (raw.count(b"x"), raw.count(b"y")) == (out, err)


# ---------------------------------------------------------------- B035

ROUNDS = int(os.environ.get("DEADLINED_B035_ROUNDS", "40"))
IDLE_ROUNDS = 4
"""Workers that die idle are the host's trouble, and with more of them within 30 s the daemon stops starting any."""


def worker_pid(client: Client, state: str, call: str | None = None) -> int:
    """The process of a worker that is ``state``, and serves ``call`` when one is named; -1: it is over already."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        rows = [row for row in client.processes() if row.call == call]
        if found := [row.pid for row in rows if row.state == state and row.pid is not None]:
            return found[0]
        if call is not None and not rows:
            return -1
        time.sleep(0.002)
    raise AssertionError(client.processes())


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
        if pid > 0:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.case("B035")
def test_b035_a_killed_worker_costs_one_call_whatever_it_was_doing(client):
    """Idle; inside a frame of its own; somewhere in a call that it has just been given. Two others run all along."""
    draw = random.Random(35)
    long = [client.submit("shell", {"argv": ["sh", "-c", "sleep 600"]}, deadline_ms=600_000) for _ in range(2)]
    lost = 0
    for number in range(ROUNDS):
        bystander = client.submit("shell", {"argv": ["sh", "-c", "sleep 0.05; echo alive"]}, deadline_ms=ENOUGH_MS)
        if number < IDLE_ROUNDS:
            worker_pid(client, "busy", bystander.call)  # until then it may still be given the idle one
            kill(worker_pid(client, "idle"))
        elif number % 2:
            size, sent = MIB - 1024, draw.randrange(80_000, 500_000)
            victim = client.submit("announce", {"size": size, "send": sent, "hang": True}, deadline_ms=60_000)
            pid = worker_pid(client, "busy", victim.call)
            time.sleep(draw.uniform(0, 0.01))
            kill(pid)
            assert victim.wait().status == "crashed"
            assert victim.wait().reason == "worker_lost"
            lost += 1
        else:
            victim = client.submit("answer", {"size": 900_000}, deadline_ms=60_000)
            kill(worker_pid(client, "busy", victim.call))
            result = victim.wait()
            assert (result.status, result.reason) in [("ok", None), ("crashed", "worker_lost")]
            lost += result.status == "crashed"
        result = bystander.wait()
        assert (result.status, result.output.view) == ("ok", "alive\n")
    assert lost >= (ROUNDS - IDLE_ROUNDS) // 2
    for handle in long:
        assert handle.result() is None, "a call that nobody touched has ended"
        handle.cancel()
        assert handle.wait().status == "cancelled"
    goes_on(client)


# ---------------------------------------------------------------- B036

BOMB = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n"
SLEEPERS = (
    "import os, signal\nmade = 0\nfor _ in range(1000):\n  try: pid = os.fork()\n  except OSError: continue\n"
    "  if pid == 0: signal.pause()\n  made += 1\nprint(made, flush=True)\nsignal.pause()\n"
)


@pytest.fixture(scope="module")
def few_processes() -> Iterator[TestedDaemon]:
    """A daemon whose calls may have 48 processes each, where this host can hold them to it."""
    with open_daemons() as start:
        # Without a group that kills in one step a bomb at full speed takes its time to end on a busy machine.
        daemon = start("[daemon]\nin_flight = 4\nconfirm_budget_ms = 30_000\n[limits]\npids = 48\n")
        if os.getuid() == 0 and "pids" not in (daemon.directory / "daemon.log").read_text():
            pytest.skip("this host gives no pids controller to root: a bomb would have no bound")
        yield daemon


@pytest.mark.case("B036")
def test_b036_a_thousand_children_are_refused_beyond_the_limit_which_binds_root_too(few_processes, mark, nothing_left):
    with Client(few_processes.socket) as client:
        arguments = {"argv": ["python3", "-c", SLEEPERS], "env": {MARK: mark}}
        handle = client.submit("shell", arguments, deadline_ms=60_000)
        made = int(next(handle.output()))
        assert 0 < made < (48 if os.getuid() == 0 else 1_000)
        handle.cancel()
        result = handle.wait()
        assert (result.status, result.kill.confirmed) == ("cancelled", True)
        nothing_left(mark)
        goes_on(client)


@pytest.mark.case("B036")
def test_b036_beside_a_fork_bomb_the_daemon_starts_workers_and_another_killer(few_processes):
    with Client(few_processes.socket) as client:
        bomb = client.submit("script", {"text": BOMB, "interpreter": "python3"}, deadline_ms=2_500)
        worker_pid(client, "busy", bomb.call)
        (killer,) = (
            child
            for child in psutil.Process(few_processes.pid).children()
            if "toolworkers killer " in " ".join(child.cmdline())
        )
        killer.kill()
        fresh = client.call("python", {"code": "6 * 7"}, deadline_ms=ENOUGH_MS)
        assert (fresh.status, fresh.content) == ("ok", 42)
        result = bomb.wait()
        assert (result.status, result.reason, result.kill.confirmed) == ("killed", "time_budget", True)
        until = time.monotonic() + 20
        while client.status().degraded:
            assert time.monotonic() < until, client.status().degraded
            time.sleep(0.01)
        goes_on(client)


# ---------------------------------------------------------------- B037

CONTENT_LIMIT = MIB - (16 << 10)
"""docs/tools.md: a value may fill a frame (1 MiB) less 16 KiB."""
_HEADER = 5
"""Bytes of msgpack in front of a long text."""


@pytest.mark.case("B037")
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 500_000, CONTENT_LIMIT - _HEADER])
def test_b037_a_large_answer_that_is_allowed_comes_whole(client, size):
    result = client.call("answer", {"size": size}, deadline_ms=ENOUGH_MS)
    assert (result.status, len(result.content)) == ("ok", size)


@pytest.mark.case("B037")
@pytest.mark.parametrize("size", [CONTENT_LIMIT - _HEADER + 1, 2 * MIB, 17 * MIB])
def test_b037_an_answer_beyond_the_maximum_fails_its_own_call_and_says_the_size(client, size):
    bystander = client.submit("shell", {"argv": ["sh", "-c", "sleep 0.2; echo alive"]}, deadline_ms=ENOUGH_MS)
    result = client.call("answer", {"size": size}, deadline_ms=ENOUGH_MS)
    assert (result.status, result.error.code) == ("error", "content")
    assert str(CONTENT_LIMIT) in result.error.message
    assert bystander.wait().output.view == "alive\n"
    goes_on(client)


@pytest.mark.case("B037")
def test_b037_a_workers_frame_of_the_maximum_passes_and_one_byte_more_costs_its_own_call(client):
    assert client.call("announce", {"size": MIB, "send": MIB}, deadline_ms=ENOUGH_MS).content == "said"
    bystander = client.submit("shell", {"argv": ["sh", "-c", "sleep 0.2; echo alive"]}, deadline_ms=ENOUGH_MS)
    result = client.call("announce", {"size": MIB + 1, "send": 100_000, "hang": True}, deadline_ms=60_000)
    assert (result.status, result.reason) == ("crashed", "protocol_error")
    assert str(MIB + 1) in result.error.message
    assert bystander.wait().output.view == "alive\n"
    goes_on(client)


def filled(size: int, **fields: Any) -> bytes:
    """A JSON line of a request that has ``size`` bytes before its line end."""
    text = json.dumps({"op": "submit", "id": 1, "tool": "shell", "arguments": '{"argv": ["true"]}', **fields})
    return text.encode() + b" " * (size - len(text)) + b"\n"


@pytest.fixture(scope="module")
def wide() -> Iterator[TestedDaemon]:
    """A daemon that takes the largest frames there are."""
    with open_daemons() as start:
        yield start(f"[daemon]\nframe_limit = {16 * MIB}\n")


@pytest.mark.case("B037")
@pytest.mark.parametrize(("which", "limit"), [("module_daemon", MIB), ("wide", 16 * MIB)])
def test_b037_a_clients_message_of_the_maximum_passes_and_one_byte_more_ends_that_client(request, which, limit):
    daemon = request.getfixturevalue(which)
    with Client(daemon.socket) as bystander, socket.socket(socket.AF_UNIX) as raw:
        running = bystander.submit("shell", {"argv": ["sh", "-c", "sleep 0.5; echo alive"]}, deadline_ms=ENOUGH_MS)
        raw.settimeout(ENOUGH_MS / 1e3)
        raw.connect(daemon.socket)
        lines = raw.makefile("rb")
        raw.sendall(b'{"op": "hello", "version": 1}\n')
        assert json.loads(lines.readline())["frame_limit"] == limit
        raw.sendall(filled(limit))
        assert json.loads(lines.readline())["result"]["status"] == "ok"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read what is too much
            raw.sendall(filled(limit + 1, id=2))
        refused = json.loads(lines.readline())
        assert (refused["op"], refused["id"], refused["error"]["code"]) == ("failed", None, "protocol_error")
        assert str(limit) in refused["error"]["message"]
        assert lines.readline() == b""
        with pytest.raises(InvalidArguments, match=str(limit)):
            bystander.call("shell", {"argv": ["true"], "stdin": "x" * limit})
        assert running.wait().output.view == "alive\n"
        goes_on(bystander)


@pytest.mark.case("B037")
def test_b037_a_text_of_fifteen_mib_reaches_a_tool_where_the_configuration_allows_it(wide):
    with Client(wide.socket) as client:
        size = 15 * MIB
        result = client.call("shell", {"argv": ["wc", "-c"], "stdin": "x" * size}, deadline_ms=ENOUGH_MS)
        assert (result.status, result.output.view.strip()) == ("ok", str(size))


# ---------------------------------------------------------------- B038

VOLUME = 90 * MIB
MEMORY = 256 * MIB
GROWTH = 24 * MIB


def peak(pid: int) -> int:
    """The most memory that a process has held, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


SCRIPT = f'head -c {VOLUME} /dev/zero | tr "\\0" a | fold -w 99; echo "the error at the end"; echo 1 failed'


@pytest.mark.case("B038")
def test_b038_a_log_of_many_times_its_share_costs_the_daemon_no_memory(start_daemon):
    """The daemon may map no more than 256 MiB of its own; the calls' processes are no part of that. Once the log is cut
    at 64 KiB, once it is kept whole."""
    daemon = start_daemon(f"[limits]\noutput_bytes = {VOLUME + 2 * MIB}\n")
    resource.prlimit(daemon.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with Client(daemon.socket) as client:
        goes_on(client)
        before = peak(daemon.pid)
        arguments = {"argv": ["sh", "-c", SCRIPT]}
        capped = client.call("shell", arguments, deadline_ms=60_000, max_output_bytes=64 << 10)
        assert (capped.status, capped.reason) == ("killed", "output_limit")
        assert 0 < capped.output.bytes <= 64 << 10
        whole = client.call("shell", arguments, deadline_ms=60_000)
        assert (whole.status, whole.output.bytes > VOLUME) == ("ok", True)
        assert whole.output.view.endswith("the error at the end\n1 failed\n")
        assert all(len(result.output.view.encode()) <= 8_192 for result in (capped, whole))
        assert peak(daemon.pid) - before < GROWTH
        goes_on(client)
