"""The programs of tests/hostile as tools, through ``exec`` and through a daemon: one outcome each, and nothing left.

Who is left is counted from outside, by a mark in the environment; a tool could wipe that, so these do not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client

pytestmark = pytest.mark.contract

PROGRAMS = Path(__file__).resolve().parents[1] / "hostile"
MARK = "DEADLINED_TEST_MARK"
HOSTILE = {"DEADLINED_HOSTILE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
NEVER_ENDS = ["ignores_signals", "stops_itself", "spins", "bombs", "hogs_descriptors", "hogs_memory"]
LEAVES = {"daemonises": 1, "holds_stdout": 1, "leaves_children": 3}


def _argv(interpreter: str, name: str) -> list[str]:
    script = PROGRAMS / f"{name}.sh"
    return ["/bin/sh", str(script)] if script.exists() else [interpreter, str(PROGRAMS / f"{name}.py")]


@pytest.fixture
def played(run_exec, python, mark, nothing_left) -> Callable[..., tuple[int, Any]]:
    """``exec`` with a hostile program: (exit code, result), once nothing is left of it."""

    def play(name: str, *options: str) -> tuple[int, Any]:
        done = run_exec(*options, "--json", "--", *_argv(python[-1], name), env=HOSTILE)
        nothing_left(mark)
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)

    return play


@pytest.fixture
def called(standing_daemon, mark, nothing_left) -> Callable[..., Any]:
    """A call of ``shell`` with a hostile program, beside a good one that must not notice; its result."""

    def call(name: str, deadline_ms: int = 20_000, **environment: str) -> Any:
        arguments = {"argv": _argv(sys.executable, name), "env": {**HOSTILE, MARK: mark, **environment}}
        with Client(standing_daemon.socket) as client:
            hostile = client.submit("shell", arguments, deadline_ms=deadline_ms)
            good = client.call("shell", {"argv": ["echo", "undisturbed"]}, deadline_ms=20_000)
            result = hostile.wait()
            nothing_left(mark)
            assert (good.status, good.output.view) == ("ok", "undisturbed\n")
            assert client.call("shell", {"argv": ["true"]}, deadline_ms=20_000).status == "ok"
        return result

    return call


@pytest.mark.parametrize("name", NEVER_ENDS)
def test_exec_ends_what_does_not_end(played, name):
    code, result = played(name, "--deadline", "1500ms")
    assert (code, result["status"], result["reason"]) == (124, "killed", "time_budget")
    assert result["kill"]["confirmed"]
    assert result["kill"]["killed"] >= 1


@pytest.mark.parametrize("name", LEAVES)
def test_exec_waits_for_the_program_and_sweeps_what_it_left(played, name):
    code, result = played(name, "--deadline", "20s")
    assert (code, result["status"], result["output"]["view"]) == (0, "ok", "done\n")
    assert result["left_processes"] == LEAVES[name]


def test_exec_stops_a_flood_at_its_limit(played):
    code, result = played("floods", "--deadline", "20s", "--max-output", "1MiB")
    assert (code, result["status"], result["reason"]) == (1, "killed", "output_limit")
    assert (result["output"]["bytes"], result["output"]["truncated"]) == (1 << 20, True)


@pytest.mark.parametrize("name", NEVER_ENDS)
def test_a_call_that_does_not_end_is_ended(called, name):
    result = called(name, deadline_ms=1_500)
    assert (result.status, result.reason) == ("killed", "time_budget")
    assert result.kill.confirmed
    assert result.kill.killed >= 1


@pytest.mark.parametrize("name", LEAVES)
def test_a_call_is_answered_when_its_program_has_ended_and_its_leftovers_too(called, name):
    result = called(name)
    assert (result.status, result.output.view, result.left_processes) == ("ok", "done\n", LEAVES[name])


def test_a_flood_costs_its_own_call_only(called):
    result = called("floods")
    assert (result.status, result.reason) == ("killed", "output_limit")
    assert (result.output.bytes, result.output.truncated) == (64 << 20, True)


def test_a_tool_runs_out_of_descriptors_at_its_own_limit(called):
    assert called("hogs_descriptors", deadline_ms=1_500).output.view == "refused 24 within its limit\n"


def test_a_tool_may_give_the_daemon_no_orders(called, standing_daemon):
    result = called("dials_the_daemon", HOSTILE_SOCKET=standing_daemon.socket)
    assert result.output.view.startswith("refused")


def test_a_tool_cannot_signal_the_daemon_nor_end_its_worker(called, standing_daemon):
    result = called("kills_the_supervisor", HOSTILE_TARGET_PID=str(standing_daemon.pid))
    lines = ["SIGSTOP refused", "SIGSTOP went to pid 1", "SIGKILL refused", "SIGKILL went to pid 1"]
    assert result.output.view.splitlines() == lines
    assert (result.status, standing_daemon.process.poll()) == ("ok", None)


def test_a_tool_does_not_see_the_daemons_environment(called, standing_daemon):
    """The mark that the daemon carries is looked for backwards, so that nobody's request contains it."""
    result = called("reads_environments", HOSTILE_CANARY=standing_daemon.mark[::-1])
    assert result.output.view == "nothing found\n"


@pytest.mark.parametrize("program", sorted(path.name for path in PROGRAMS.glob("[a-z]*")))
def test_no_hostile_program_runs_by_accident(run_exec, python, program):
    done = run_exec("--deadline", "20s", "--", *_argv(python[-1], program.rpartition(".")[0]))
    assert done.returncode != 0
    assert "ready" not in done.stdout
