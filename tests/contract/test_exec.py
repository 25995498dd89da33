"""``deadlined exec`` on real programs: how calls end, and that nothing of them is left. As root and as a plain uid."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from protocol._outcomes import CallResult, Delivery, Reason, Status

pytestmark = pytest.mark.contract
Run = Callable[..., "subprocess.CompletedProcess[str]"]
NothingLeft = Callable[..., None]
ESCAPERS = 'setsid sleep 1111 & (sleep 1111 &) ; setsid sh -c "sleep 1111 & sleep 1111" & sleep 1111'


def result_of(done: subprocess.CompletedProcess[str]) -> CallResult:
    """The result object, which must be all of stdout and fit the types every client has."""
    assert done.stdout.count("\n") == 1, done.stdout
    return msgspec.json.decode(done.stdout, type=CallResult)


def test_the_deadline_ends_every_process_however_it_escaped(
    run_exec: Run, mark: str, nothing_left: NothingLeft
) -> None:
    done = run_exec("--deadline", "500ms", "--json", "--", "sh", "-c", ESCAPERS)
    nothing_left(mark)
    result = result_of(done)
    assert done.returncode == 124
    assert (result.status, result.reason, result.phase) == (Status.KILLED, Reason.TIME_BUDGET, "tool")
    assert result.delivery is Delivery.UNKNOWN
    assert result.kill is not None
    assert result.kill.confirmed
    assert result.kill.mechanism == ["pidns"]
    assert 4 <= result.kill.killed <= 7  # a lower bound of seven: a parent may reap a child while both die
    assert result.timing.deadline_ms == 500
    assert result.exit is not None
    assert result.exit.signal == "SIGKILL"


def test_a_command_that_ignores_sigterm_ends_all_the_same(run_exec: Run, mark: str, nothing_left: NothingLeft) -> None:
    script = "trap '' TERM HUP INT; echo ready; while :; do sleep 0.05; done"
    done = run_exec("--deadline", "600ms", "--term-grace", "200ms", "--", "sh", "-c", script)
    nothing_left(mark)
    assert (done.returncode, done.stdout) == (124, "ready\n")


def test_within_the_grace_a_command_may_clean_up(run_exec: Run, open_directory: Path) -> None:
    script = f"trap 'echo clean > {open_directory}/note; exit 3' TERM; sleep 1111 & wait"
    done = run_exec("--deadline", "2s", "--term-grace", "1500ms", "--", "sh", "-c", script)
    assert (open_directory / "note").read_text() == "clean\n"
    assert done.returncode == 124, "what the SIGTERM before a deadline has ended was ended by the deadline"
    assert "ended by SIGTERM" in done.stderr


def test_leftovers_end_with_the_command_and_are_counted(run_exec: Run, mark: str, nothing_left: NothingLeft) -> None:
    done = run_exec("--json", "--", "sh", "-c", "sleep 1111 & setsid sleep 1111 & echo hi")
    nothing_left(mark)
    result = result_of(done)
    assert (done.returncode, result.status, result.left_processes) == (0, Status.OK, 2)
    assert result.output.view == "hi\n"
    assert [notice.detector for notice in result.notices] == ["left_processes"]


def test_a_pipe_held_by_a_leftover_delays_nobody(run_exec: Run) -> None:
    done = run_exec("--", "sh", "-c", "sleep 1111 & echo hi", timeout=20)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "1 process left behind" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["no-such-program-anywhere"], 127),
        (["/no/such/file"], 127),
        ([""], 127),
        (["/"], 126),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_code_says_how_it_ended(run_exec: Run, words: list[str], code: int) -> None:
    done = run_exec("--", *words)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == (1 if code in (126, 127) else 0), done.stderr


@pytest.mark.parametrize("text", ["#!/no/such/interpreter\n", "echo no interpreter is named\n"])
def test_a_script_that_the_kernel_does_not_take_is_126(run_exec: Run, open_directory: Path, text: str) -> None:
    script = open_directory / "script"
    script.write_text(text)
    script.chmod(0o755)
    assert run_exec("--", str(script)).returncode == 126


def test_a_command_that_was_not_found_has_a_result_too(run_exec: Run) -> None:
    done = run_exec("--json", "--", "no-such-program-anywhere")
    result = result_of(done)
    assert (done.returncode, result.status, result.delivery) == (127, Status.ERROR, Delivery.FAILED_DEFINITE)
    assert result.error is not None
    assert result.error.code == "not_found"


def test_a_name_that_is_no_text_has_a_result_too(run_exec: Run) -> None:
    assert run_exec("--json", "--", "no-such-\udcff").returncode == 127


@pytest.mark.parametrize("words", [["--cwd", "/no/such"], ["--stdin", "/no/such"]])
def test_what_deadlined_cannot_do_is_125_and_one_line(run_exec: Run, words: list[str]) -> None:
    done = run_exec(*words, "--", "echo", "never")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)


def test_a_demanded_isolation_fails_closed_and_a_wanted_one_is_reported(run_exec: Run) -> None:
    demanded = run_exec("--min-isolation", "bwrap", "--", "echo", "never")
    assert (demanded.returncode, demanded.stdout) == (125, "")
    isolation = result_of(run_exec("--isolation", "guard", "--json", "--", "true")).isolation
    assert (isolation.wanted, isolation.achieved) == ("guard", "contain")
    assert "guard" in isolation.missing


@pytest.mark.parametrize(
    "words", [["--deadline", "0", "--", "true"], ["--deadline", "61m", "--", "true"], ["true"], []]
)
def test_a_wrong_line_is_2_and_one_line(run_exec: Run, words: list[str]) -> None:
    done = run_exec(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_more_output_than_allowed_ends_the_call_at_the_cap(run_exec: Run, mark: str, nothing_left: NothingLeft) -> None:
    done = run_exec("--max-output", "64KiB", "--json", "--", "sh", "-c", "yes | cat")
    nothing_left(mark)
    result = result_of(done)
    assert (done.returncode, result.status, result.reason) == (1, Status.KILLED, Reason.OUTPUT_LIMIT)
    assert (result.output.bytes, result.output.truncated) == (65_536, True)
    assert len(result.output.view.encode()) <= 8192
    assert "of 65536 bytes are missing" in result.output.view


def test_exactly_the_allowed_output_is_an_ordinary_end(run_exec: Run) -> None:
    result = result_of(run_exec("--max-output", "64KiB", "--json", "--", "head", "-c", "65536", "/dev/zero"))
    assert (result.status, result.output.bytes, result.output.truncated) == (Status.OK, 65_536, False)


def test_captured_output_keeps_its_two_ways(run_exec: Run) -> None:
    done = run_exec("--max-output", "1MiB", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")


def test_captured_output_of_one_way_keeps_its_order(run_exec: Run) -> None:
    script = "for i in 1 2 3 4 5; do echo $i; echo $i >&2; done"
    done = run_exec(
        "--max-output",
        "1MiB",
        "--",
        "sh",
        "-c",
        script,
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        capture_output=False,
    )
    assert done.stdout.split() == [digit for digit in "12345" for _ in (1, 2)]


def test_output_before_a_kill_is_kept(run_exec: Run) -> None:
    done = run_exec("--deadline", "700ms", "--max-output", "1MiB", "--", "sh", "-c", "echo early; sleep 1111")
    assert (done.returncode, done.stdout) == (124, "early\n")


def test_a_deadline_that_passes_before_the_start_starts_nothing(run_exec: Run, open_directory: Path) -> None:
    result = result_of(done := run_exec("--deadline", "1ms", "--json", "--", "touch", f"{open_directory}/ran"))
    assert done.returncode == 124
    assert (result.status, result.reason) == (Status.NOT_EXECUTED, Reason.TIME_BUDGET)
    assert result.delivery is Delivery.NOT_DELIVERED
    assert os.listdir(open_directory) == []


def test_a_crowd_of_daemons_ends_as_one(run_exec: Run, mark: str, nothing_left: NothingLeft) -> None:
    script = "i=0; while [ $i -lt 40 ]; do (setsid sleep 1111 &) ; i=$((i+1)); done; sleep 1111"
    done = run_exec("--deadline", "1500ms", "--json", "--", "sh", "-c", script)
    nothing_left(mark)
    kill = result_of(done).kill
    assert kill is not None
    assert kill.confirmed
    assert kill.killed >= 40
