"""``deadlined exec`` without a namespace: because less isolation is wanted, or because the host gives none."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import msgspec
import psutil
import pytest

from protocol._outcomes import CallResult
from tests.contract import conftest
from tests.contract.conftest import MARK
from tests.contract.lower_levels import REFUSE
from tests.contract.test_exec_signals import frozen

pytestmark = pytest.mark.contract
Run = Callable[..., "subprocess.CompletedProcess[str]"]
CROWD = (
    "trap '' TERM HUP INT; for i in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 1000 & done;"
    " for i in 1 2 3 4 5; do (setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &); done; sleep 1000"
)
CROWD_SIZE = 21


def result_of(done: subprocess.CompletedProcess[str]) -> CallResult:
    return msgspec.json.decode(done.stdout, type=CallResult)


@pytest.fixture(params=["none", "limits", "refused"])
def words(request: pytest.FixtureRequest, exec_words: list[str]) -> list[str]:
    """The words that start a call with a guard."""
    if request.param != "refused":
        return [*exec_words, "--isolation", request.param]
    python = exec_words[: -len(["-m", "deadlined", "exec"])]
    return [*python, REFUSE, "namespaces", python[-1], "-m", "deadlined", "exec"]


@pytest.fixture
def run(words: list[str], mark: str) -> Run:
    def start(*more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, MARK: mark}
        return subprocess.run(
            [*words, *more],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    return start


@pytest.fixture
def started(words: list[str], mark: str, somebody_alive):
    """A call whose crowd is there; it must be gone at the end. The command line and its guard are the first two."""
    environment = {**os.environ, MARK: mark}

    def start(*more: str) -> tuple[subprocess.Popen[str], psutil.Process]:
        process = subprocess.Popen(
            [*words, *more, "--", "sh", "-c", CROWD],
            env=environment,
            cwd="/",
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        somebody_alive(mark, 2 + CROWD_SIZE)
        (guard,) = psutil.Process(process.pid).children()
        return process, guard

    return start


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_everybody_is_gone_at_the_deadline_and_the_result_says_how(run, mark, nothing_left):
    done = run("--deadline", "700ms", "--json", "--", "sh", "-c", CROWD)
    nothing_left(mark)
    result = result_of(done)
    assert done.returncode == 124
    assert (result.status, result.containment, result.kill.mechanism) == ("killed", "subreaper", ["subreaper"])
    assert result.kill.confirmed
    assert result.kill.killed >= 1  # a lower bound, as everywhere
    wanted = result.isolation.wanted
    assert result.isolation.achieved == ("none" if wanted == "contain" else wanted)
    assert result.isolation.missing == (["namespaces", "signal_scope"] if wanted == "contain" else [])


def test_what_outlives_the_command_is_killed_and_counted(run, mark, nothing_left):
    done = run("--json", "--", "sh", "-c", "setsid sleep 1000 & (setsid sleep 1000 &) ; exit 7")
    nothing_left(mark)
    assert (done.returncode, result_of(done).left_processes) == (7, 2)


def test_a_grace_reaches_sessions_of_their_own(run, mark, nothing_left):
    child = "trap 'echo child heard; exit' TERM; sleep 1000 & wait"
    script = f"setsid sh -c \"{child}\" & trap 'wait; echo heard; exit' TERM; sleep 1000 & wait"
    done = run("--deadline", "20s", "--term-grace", "17500ms", "--json", "--", "sh", "-c", script)
    nothing_left(mark)
    assert {"child heard", "heard"} <= set(result_of(done).output.view.splitlines())
    assert done.returncode == 124


def test_output_and_exit_are_the_commands_own(run):
    done = run("--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert run("--", "sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV
    assert run("--max-output", "64KiB", "--", "sh", "-c", "yes").returncode == 1


def test_a_killed_guard_leaves_nobody(started, mark, nothing_left):
    process, guard = started()
    guard.kill()
    code, said = finish(process)
    nothing_left(mark)
    assert code == 125
    assert "ended from outside" in said


def test_a_stopped_guard_is_killed_behind_the_deadline_and_leaves_nobody(started, mark, nothing_left):
    process, guard = started("--deadline", "3s")
    guard.suspend()
    code, _ = finish(process)
    nothing_left(mark)
    assert code == 124


def test_a_killed_command_line_takes_the_call_along(started, mark, nothing_left):
    process, _ = started()
    process.kill()
    finish(process)
    nothing_left(mark, patience_s=5)


def test_a_stopped_command_line_does_not_stop_the_deadline(started, mark, nothing_left):
    process, _ = started("--deadline", "3s")
    os.kill(process.pid, signal.SIGSTOP)
    until = time.monotonic() + 20
    while len(left := conftest.alive(mark)) > 1:  # it is the one that is stopped
        assert time.monotonic() < until, left
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGCONT)
    assert finish(process)[0] == 124
    nothing_left(mark)


def test_children_of_the_program_whose_place_it_took_are_spared(words, mark, somebody_alive, nothing_left):
    """They were there before: what they leave behind is theirs."""
    other = f"{mark}-other"
    script = f"env {MARK}={other} sh -c '(sleep 1000 &) ; sleep 1000' 2>/dev/null & exec \"$@\""
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", *words, "--deadline", "500ms", "--", "sh", "-c", "setsid sleep 1000 & sleep 1000"],
        env={**os.environ, MARK: mark},
        cwd="/",
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert finish(process)[0] == 124
        assert len([line for line in conftest.alive(other) if "sleep" in line]) == 3  # a shell and its two
    finally:
        for line in conftest.alive(other):
            os.kill(int(line.split()[0]), signal.SIGKILL)
    while conftest.alive(other):  # ours, and on their way
        time.sleep(0.01)
    nothing_left(mark)


def test_one_that_sigkill_does_not_end_is_named(started, mark, nothing_left):
    with frozen() as freeze:
        process, guard = started("--deadline", "3s")
        command = guard.children()[0].pid
        freeze(str(command))
        assert process.wait(60) == 124
        said = os.read(process.stderr.fileno(), 4096).decode()  # its end would come with the frozen one's
    assert "NOT confirmed" in said
    assert f"pid {command} (sh)" in said
    nothing_left(mark, patience_s=5)
    finish(process)
