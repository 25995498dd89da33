"""K02: the end of a pipe is waited for in place of the end of a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, wait_until
from tests.contract.conftest import MARK

pytestmark = pytest.mark.contract

HOLDS = {
    "both": f"sleep {FOREVER} &",
    "stdout alone": f"sleep {FOREVER} 2>/dev/null &",
    "stderr alone": f"sleep {FOREVER} >/dev/null &",
    "in a session of its own": f"setsid sleep {FOREVER} &",
}
PYTHON_FORKS = f"import os, time\nprint('early', flush=True)\nif os.fork() == 0: time.sleep({FOREVER})\n"


@pytest.mark.case("B010")
@pytest.mark.parametrize("split", [False, True], ids=["one pipe", "two pipes"])
@pytest.mark.parametrize("holder", HOLDS)
def test_b010_who_holds_the_pipe_does_not_delay_the_deadlines_answer(calls, holder, split):
    line = f"echo early; {HOLDS[holder]} sleep {FOREVER}"
    result = calls.run("sh", "-c", line, deadline_ms=400, split_streams=split)
    assert (result.status, result.reason, result.kill.confirmed) == ("killed", "time_budget", True)
    assert result.output.view == "early\n"


@pytest.mark.case("B010")
@pytest.mark.parametrize("holder", HOLDS)
def test_b010_nor_the_answer_to_a_cancel(calls, holder):
    watched = calls.begin("shell", calls.arguments("sh", "-c", f"echo early; {HOLDS[holder]} sleep {FOREVER}"), count=3)
    watched.handle.cancel()
    result = watched.handle.wait(PATIENCE_S)
    watched.check_gone()
    assert (result.status, result.output.view) == ("cancelled", "early\n")


@pytest.mark.case("B010")
def test_b010_nor_exec(run_exec, mark, nothing_left):
    done = run_exec(
        "--deadline", "1500ms", "--json", "--", "sh", "-c", f"echo early; sleep {FOREVER} & sleep {FOREVER}"
    )
    nothing_left(mark)
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["output"]["view"]) == (124, "killed", "early\n")


@pytest.mark.case("B011")
@pytest.mark.parametrize("holder", HOLDS)
def test_b011_a_call_is_over_when_its_program_is_whoever_holds_the_pipe(calls, holder):
    result = calls.run("sh", "-c", f"{HOLDS[holder]} echo started")
    assert (result.status, result.exit.code, result.output.view) == ("ok", 0, "started\n")
    assert (result.left_processes, [notice.detector for notice in result.notices]) == (1, ["left_processes"])
    assert "killed" in result.notices[0].text


GIVES = "s.connect(name)\nsocket.send_fds(s, [b'x'], [1])\nprint('mine', flush=True)"
TAKES = (
    "s.bind(name)\ns.listen()\n_, held, _, _ = socket.recv_fds(s.accept()[0], 1, 1)\n"
    f"print('holds', flush=True)\ntime.sleep({FOREVER})"
)


@pytest.mark.case("B011")
@pytest.mark.parametrize("route", ["exits", "is cancelled"])
def test_b011_even_when_the_holder_is_a_process_of_another_call(calls, route):
    """It got the pipe's end through a socket: no kill of the first call reaches it."""
    head = f"import socket, time\nname = '\\0{calls.mark}'\ns = socket.socket(socket.AF_UNIX)\n"
    holder = calls.client.submit("shell", {"argv": ["python3", "-c", head + TAKES]}, deadline_ms=60_000)
    wait_until(lambda: calls.mark in Path("/proc/net/unix").read_text(), "nobody listens")
    tail = "" if route == "exits" else f"\ntime.sleep({FOREVER})"
    giver = calls.client.submit("shell", {"argv": ["python3", "-c", head + GIVES + tail]}, deadline_ms=60_000)
    wait_until(lambda: b"holds" in b"".join(holder.output(follow=False)), "it was given nothing")
    if route != "exits":
        wait_until(lambda: b"mine" in b"".join(giver.output(follow=False)), "it has not printed")
        giver.cancel()
    result = giver.wait(PATIENCE_S)
    assert (result.status, result.output.view) == ("ok" if route == "exits" else "cancelled", "mine\n")
    assert holder.result() is None
    holder.cancel()
    holder.wait(PATIENCE_S)


@pytest.mark.case("B011")
def test_b011_also_a_python_tool_and_a_program_that_fails(calls):
    code = f"import subprocess; subprocess.Popen(['sleep', '{FOREVER}'], env={{'{MARK}': '{calls.mark}'}}); 'started'"
    result = calls.tool("python", {"code": code})
    assert (result.status, result.content, result.left_processes) == ("ok", "started", 1)
    failed = calls.run("sh", "-c", f"sleep {FOREVER} & echo started; exit 3")
    assert (failed.status, failed.exit.code, failed.left_processes) == ("error", 3, 1)


@pytest.mark.case("B011")
def test_b011_also_exec(run_exec, mark, nothing_left):
    done = run_exec("--deadline", "20s", "--json", "--", "sh", "-c", f"sleep {FOREVER} & echo started")
    nothing_left(mark)
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["left_processes"]) == (0, "ok", 1)
    assert result["output"]["view"] == "started\n"


@pytest.mark.case("B012")
@pytest.mark.parametrize("argv", [["bash", "-c", "sleep 8"], ["sleep", "8"], ["sh", "-c", "sleep 8; echo late"]])
def test_b012_the_answer_waits_for_no_stream_of_the_dead(calls, argv):
    """All that is asked: less than the sleep, of a kill that was due after a thirtieth of it."""
    result = calls.run(*argv, deadline_ms=300)
    assert (result.status, result.output.bytes) == ("killed", 0)
    assert result.timing.duration_ms < 8_000


@pytest.mark.case("B013")
@pytest.mark.parametrize("route", ["deadline", "cancel"])
@pytest.mark.parametrize("stream", [0, 1, 2])
def test_b013_a_forked_helper_with_a_stream_holds_up_nobody(calls, route, stream):
    """The helper keeps one stream of three; what would be standard input is larger than a pipe, and is not read."""
    closes = "".join(f"os.close({other})\n" for other in {0, 1, 2} - {stream})
    code = f"import os, time\nif os.fork() == 0:\n    {closes.strip().replace(chr(10), '; ')}\ntime.sleep({FOREVER})"
    arguments = calls.arguments("python3", "-c", code, stdin="x" * 300_000)
    result = calls.end(route, "shell", arguments, count=2)
    assert result.status == {"deadline": "killed", "cancel": "cancelled"}[route]


@pytest.mark.case("B013")
def test_b013_nor_one_of_a_python_tool(calls):
    result = calls.tool("python", {"code": PYTHON_FORKS + f"time.sleep({FOREVER})"}, deadline_ms=500)
    assert (result.status, result.output.view) == ("killed", "early\n")


@pytest.mark.case("B014")
@pytest.mark.parametrize(
    ("argv", "deadline_ms", "says"),
    [
        (["python3", "-m", "http.server", "0", "--bind", "127.0.0.1"], 3_000, "Serving HTTP on 127.0.0.1"),
        (["sh", "-c", f"echo listening; exec sleep {FOREVER}"], 500, "listening"),
        (["sh", "-c", "echo building; while :; do :; done"], 500, "building"),
    ],
    ids=["a server", "silence after a word", "a busy loop"],
)
def test_b014_a_program_that_was_well_when_its_time_was_up_is_told_from_one_that_hung(calls, argv, deadline_ms, says):
    result = calls.run(*argv, deadline_ms=deadline_ms)
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert result.output.view.startswith(says)
    assert "It was healthy and still running when its deadline came" in result.next_action
    assert "detach" in result.next_action
    assert not result.retryable


@pytest.mark.case("B014")
def test_b014_of_a_program_that_said_nothing_no_health_is_claimed(calls):
    result = calls.run("sleep", FOREVER, deadline_ms=300)
    assert "healthy" not in result.next_action
    assert "detach" in result.next_action


@pytest.mark.case("B014")
def test_b014_what_it_is_told_to_do_works(calls):
    """The same server, detached: it serves, its output is read while it runs, and it is ended when asked to."""
    server = calls.arguments("python3", "-m", "http.server", "0", "--bind", "127.0.0.1")
    handle = calls.client.submit("shell", server, deadline_ms=60_000, detach=True)
    wait_until(lambda: b"Serving HTTP" in b"".join(handle.output(follow=False)), "it does not serve")
    assert handle.result() is None
    handle.cancel()
    assert handle.wait(PATIENCE_S).status == "cancelled"


@pytest.mark.case("B015")
@pytest.mark.parametrize("line", ["while :; do echo x; sleep 0.02; done", "while :; do echo x >&2; sleep 0.02; done"])
def test_b015_what_may_go_on_is_listened_to(calls, line):
    """Its client is gone, and nothing reads what it writes but the product."""
    with Client(calls.daemon.socket) as leaving:
        handle = leaving.submit("shell", calls.arguments("sh", "-c", line), deadline_ms=60_000, detach=True)
    detached = calls.client.handle(handle.call)
    seen = _bytes_of(detached)
    wait_until(lambda: _bytes_of(detached) > seen + 20, "its output is not taken")
    assert detached.result() is None
    detached.cancel()
    result = detached.wait(PATIENCE_S)
    assert (result.status, result.exit.signal) == ("cancelled", "SIGKILL")
    assert result.output.bytes > seen + 20


@pytest.mark.case("B015")
def test_b015_within_a_bound(calls):
    with Client(calls.daemon.socket) as leaving:
        arguments = calls.arguments("yes")
        handle = leaving.submit("shell", arguments, deadline_ms=60_000, detach=True, max_output_bytes=1 << 20)
    result = calls.client.handle(handle.call).wait(PATIENCE_S)
    assert (result.status, result.reason, result.output.bytes) == ("killed", "output_limit", 1 << 20)


def _bytes_of(handle) -> int:
    return sum(len(piece) for piece in handle.output(follow=False))
