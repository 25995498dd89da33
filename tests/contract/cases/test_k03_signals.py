"""K03: SIGTERM is ignored, the escalation never comes, or a signal hits whoever it must not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time

import pytest

from deadlined import Client
from supervisor.clock import now_ns
from supervisor.containment.workers import Worker
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, wait_until
from tests.supervisor.containment.test_second_line import MadeUp, Stage

pytestmark = pytest.mark.contract

DEAF = f"trap '' HUP INT QUIT TERM; echo deaf; sleep {FOREVER}; :"
DEAF_PYTHON = (
    "import signal, time\nfor number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\n"
    "print('deaf', flush=True)\nwhile True: time.sleep(60)"
)
CLEANS = f"trap 'echo cleaned; exit 0' TERM; echo up; sleep {FOREVER} & wait"
CLEANS_PYTHON = (
    "import signal, time\nseen = []\nsignal.signal(15, lambda *_: seen.append(1))\nprint('up', flush=True)\n"
    "while not seen: time.sleep(0.005)\nprint('cleaned', flush=True)"
)
CONFIG = f"""
[tool.deaf_with_grace]
kind = "command"
argv = ["sh", "-c", {json.dumps(DEAF)}]
term_grace_ms = 300
[tool.cleans]
kind = "command"
argv = ["sh", "-c", {json.dumps(CLEANS)}]
term_grace_ms = 800
[tool.cleans_without_grace]
kind = "command"
argv = ["sh", "-c", {json.dumps(CLEANS)}]
[tool.script]
term_grace_ms = 800
[tool.python]
term_grace_ms = 800
[tool.chaos]
kind = "python"
module = "toolworkers.chaos"
"""


@pytest.mark.case("B016")
@pytest.mark.parametrize("route", ["deadline", "cancel", "disconnect"])
@pytest.mark.parametrize("argv", [["sh", "-c", DEAF], ["python3", "-c", DEAF_PYTHON]], ids=["sh", "python3"])
def test_b016_a_program_that_ignores_every_polite_signal_ends_on_time(calls, route, argv):
    result = calls.end(route, "shell", calls.arguments(*argv), count=1)
    assert result is None or result.exit.signal == "SIGKILL"


@pytest.mark.case("B016")
def test_b016_so_does_a_python_tool(calls):
    result = calls.tool("python", {"code": DEAF_PYTHON}, deadline_ms=600)
    assert (result.status, result.reason, result.output.view) == ("killed", "time_budget", "deaf\n")


@pytest.mark.case("B016")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
def test_b016_a_grace_is_spent_before_the_deadline_and_never_after(calls, route):
    """A cancel waits for the grace too, but for no more; the deadline that is far away moves nothing."""
    if route == "deadline":
        result = calls.tool("deaf_with_grace", {}, deadline_ms=700)
        assert (result.status, result.reason) == ("killed", "time_budget")
    else:
        watched = calls.begin("deaf_with_grace", {}, count=2, deadline_ms=600_000)
        watched.handle.cancel()
        result = watched.handle.wait(PATIENCE_S)
        watched.check_gone()
        assert (result.status, result.reason) == ("cancelled", "client")
    assert (result.output.view, result.exit.signal, result.kill.confirmed) == ("deaf\n", "SIGKILL", True)


CLAIMS = ("signalled_ns", "shot_ns", "gone_ns", "ended_for", "reaped")
"""What a worker's handle knows of its end before the kernel has spoken."""


@pytest.mark.case("B017")
async def test_b017_the_second_line_asks_nobody_whether_a_signal_was_sent():
    """All that could be said of a worker is said: signalled, shot, ended. It is killed and missed all the same."""
    worker = MadeUp(now_ns(), dies=False)
    vars(worker).update(dict.fromkeys(CLAIMS, 1))
    stage = Stage(worker)
    stage.line.poke(worker.due_ns)
    await stage.play(0.3)
    assert (len(worker.kills), stage.unconfirmed) == (1, [worker])


@pytest.mark.case("B017")
def test_b017_a_worker_is_gone_when_the_kernel_says_so_and_shot_again_until_then():
    process = subprocess.Popen(["sleep", FOREVER])
    worker = object.__new__(Worker)
    vars(worker).update(dict.fromkeys(CLAIMS, 1), pidfd=os.pidfd_open(process.pid), guard=None)
    assert not worker.gone()
    worker.kill()
    wait_until(worker.gone, "it was not shot")
    assert process.wait() == -signal.SIGKILL
    os.close(worker.pidfd)


@pytest.mark.case("B018")
@pytest.mark.parametrize(
    "line",
    [
        "kill -TERM 0; sleep 5",
        'kill -TERM -- -$(ps -o pgid= -p $PPID | tr -d " "); sleep 5',
        "kill -TERM -1; sleep 5",
        "kill -KILL 0; sleep 5",
        "kill -KILL -1; kill -KILL $PPID; kill -TERM $PPID; sleep 5",
        "trap '' TERM; kill -TERM 0; kill -KILL -- -$$; sleep 5",
    ],
)
def test_b018_a_signal_to_a_group_stays_in_the_call(calls, line):
    """The daemon lives (`calls` looks), its other call goes on, and this one has one outcome within its deadline."""
    beside = calls.begin("shell", {"argv": ["sleep", FOREVER]})
    result = calls.run("sh", "-c", line, deadline_ms=500)
    assert (result.status, result.reason) in [("error", None), ("killed", "time_budget"), ("ok", None)]
    assert beside.handle.result() is None
    beside.handle.cancel()
    beside.handle.wait(PATIENCE_S)


@pytest.mark.case("B018")
@pytest.mark.parametrize("target", ["0", "os.getpgrp()", "os.getpgid(os.getppid())", "1"])
def test_b018_also_one_from_a_python_tool(calls, target):
    code = f"import os, signal, time\nos.killpg({target}, signal.SIGTERM)\ntime.sleep(0.05)\n'here'"
    result = calls.tool("python", {"code": code}, deadline_ms=5_000)
    assert result.status in ("ok", "error", "crashed")


@pytest.mark.case("B018")
def test_b018_also_one_from_a_command_of_exec(run_exec):
    """Its caller, in whose group it was started, is this very test."""
    done = run_exec("--deadline", "20s", "--json", "--", "sh", "-c", "kill -TERM 0; sleep 5")
    assert json.loads(done.stdout)["exit"]["signal"] == "SIGTERM"


@pytest.mark.case("B019")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("cleans", {}), ("script", {"text": CLEANS, "interpreter": "sh"}), ("python", {"code": CLEANS_PYTHON})],
    ids=["command", "script", "python"],
)
def test_b019_with_a_grace_every_kind_of_tool_may_clean_up(calls, tool, arguments, route):
    result = _ended(calls, route, tool, arguments, 1_600)
    assert result.output.view == "up\ncleaned\n"
    assert result.timing.overrun_ms == 0
    assert ("term_sent" in [notice.detector for notice in result.notices]) is (route == "deadline")


@pytest.mark.case("B019")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
def test_b019_without_one_no_command_may(calls, route):
    result = _ended(calls, route, "cleans_without_grace", {}, 500)
    assert (result.exit.signal, result.output.view) == ("SIGKILL", "up\n")


@pytest.mark.case("B019")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
def test_b019_nor_a_python_tool(calls, route):
    """It would answer at once if it were told that it is cancelled."""
    result = _ended(calls, route, "chaos_sleep", {"heed_cancel": True}, 500, says=b"")
    assert (result.exit.signal, result.content) == ("SIGKILL", None)
    assert "late_result" not in [notice.detector for notice in result.notices]


def _ended(calls, route, tool, arguments, deadline_ms, says=b"up"):
    if route == "deadline":
        return calls.tool(tool, arguments, deadline_ms)
    watched = calls.begin(tool, arguments, count=0)
    wait_until(lambda: says in b"".join(watched.handle.output(follow=False)), "it never said that it is up")
    watched.handle.cancel()
    return watched.handle.wait(PATIENCE_S)


@pytest.mark.case("B020")
@pytest.mark.parametrize("tool", ["shell", "python"])
def test_b020_a_call_never_hangs_on_a_worker_that_was_killed_for_another(start_daemon, tool):
    """A pool of one. ``DEADLINED_ROUNDS`` asks for more than the suite's share of the thousand."""
    rounds = int(os.environ.get("DEADLINED_ROUNDS", "30"))
    first = {"argv": ["sleep", "0.02"]} if tool == "shell" else {"code": "import time; time.sleep(0.02)"}
    second = {"argv": ["true"]} if tool == "shell" else {"code": "1"}
    daemon = start_daemon("[daemon]\nin_flight = 1\nspares = 0\n")
    draw, ends = random.Random(20), set()
    with Client(daemon.socket) as client:
        for _ in range(rounds):
            a = client.submit(tool, first, deadline_ms=30_000)
            b = client.submit(tool, second, deadline_ms=30_000)
            time.sleep(draw.uniform(0.015, 0.03))
            a.cancel()
            assert b.wait(PATIENCE_S).status == "ok"
            ends.add(a.wait(PATIENCE_S).status)
    assert ends <= {"ok", "no_result", "cancelled"}
