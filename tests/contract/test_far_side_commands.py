"""Commands by themselves: a real zygote, real workers, pipes and raw files as the daemon makes them."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol._contracts import Limits
from tests.contract.farside import Capture, Worker, Zygote, is_alive, open_zygote

pytestmark = pytest.mark.contract
PLAIN_UID = 61_234
TOOLS = """
import os, sys, time
from toolworkers import CommandPlan, ToolError, command
from protocol import InvalidArguments

@command(home="private", env=("WANTED",))
def private(argv: list[str]) -> CommandPlan:
    return CommandPlan(argv)

@command
def plan(what: str) -> CommandPlan:
    if what == "raise":
        raise ToolError("no plan today", code="no_plan")
    if what == "invalid":
        raise InvalidArguments("never like this")
    if what == "crash":
        raise KeyError("plan")
    if what == "other":
        return ["true"]
    if what == "surrogate":
        return CommandPlan(["cat"], stdin="\\udc80")
    if what == "fork":
        if os.fork():
            time.sleep(0.3)  # the child comes first
        return CommandPlan(["sh", "-c", "echo run >> $TMPDIR/runs; cat $TMPDIR/runs"])
    if what == "inheritable":
        os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
        return CommandPlan(["sh", "-c", "ls /proc/self/fd"])
    path = os.path.join(os.environ["TMPDIR"], "temporary")
    open(path, "w").write("here")
    return CommandPlan(["cat", path], temporary=(path,))
"""


@pytest.fixture(scope="module", params=["own uid", "plain uid"])
def interpreter(request: pytest.FixtureRequest) -> list[str]:
    """As the fixture ``python``, once a module."""
    if request.param == "own uid":
        return [sys.executable]
    if os.getuid() != 0:
        pytest.skip("the tests run as a plain uid already: 'own uid' is that")
    return request.getfixturevalue("plain_uid_python")


@pytest.fixture(scope="module")
def zygote(interpreter: list[str]) -> Iterator[Zygote]:
    with tempfile.TemporaryDirectory(prefix="deadlined-test-") as name:
        directory = Path(name)
        directory.chmod(0o777)
        (directory / "far_side_commands.py").write_text(TOOLS)
        words = {"PATH": os.environ["PATH"], "HOME": "/", "WANTED": "w", "HIDDEN": "h", "LANG": "C.UTF-8"}
        options = {"modules": ["far_side_commands"], "path": [name], "user_env": words}
        with open_zygote(directory, python=interpreter, **options) as zygote:
            zygote.uid = PLAIN_UID if len(interpreter) > 1 else os.getuid()
            yield zygote


@pytest.fixture
def spawn(zygote: Zygote) -> Iterator[Callable[..., Worker]]:
    """Starts ready workers; they are gone afterwards."""
    workers: list[Worker] = []

    def start(**fields: object) -> Worker:
        worker = zygote.spawn(uid=zygote.uid, **fields)
        workers.append(worker)
        worker.wait_ready()
        return worker

    yield start
    for worker in workers:
        worker.kill()
        assert worker.gone()
        worker.close()


@pytest.fixture
def worker(spawn: Callable[..., Worker]) -> Worker:
    return spawn()


def still_serves(worker: Worker) -> bool:
    return worker.command(["echo", "hi"])[1] == b"hi\n"


# ---------------------------------------------------------------- exits


def test_a_command_gives_its_exit_code_and_its_output(worker: Worker) -> None:
    ended, output = worker.command(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (ended.how, ended.code, ended.signal) == ("exit", 3, None)
    assert output == b"out\nerr\n"
    assert ended.output_bytes == [8]
    assert (ended.left_processes, ended.reusable, worker.accepted) == (0, True, True)
    assert ended.max_rss_bytes > 100_000


def test_a_command_that_a_signal_ended_names_it(worker: Worker) -> None:
    ended, _ = worker.command(["sh", "-c", "kill -SEGV $$"])
    assert (ended.how, ended.code, ended.signal) == ("exit", None, "SIGSEGV")


def test_fifty_commands_share_one_worker(worker: Worker) -> None:
    assert all(worker.command(["true"])[0].reusable for _ in range(50))


@pytest.mark.parametrize(
    ("argv", "how"),
    [
        (["no-such-program-anywhere"], "not_found"),
        (["/no/such/program"], "not_found"),
        (["./relative-nothing"], "not_found"),
        (["/etc/passwd"], "cannot_run"),
        (["/tmp"], "cannot_run"),
        (["sh\0"], "invalid_arguments"),
        (["sh", "\0"], "invalid_arguments"),
        (["echo", "x" * (128 << 10)], "invalid_arguments"),
        (["echo", *["x" * 100_000] * 70], "invalid_arguments"),
        ([], "invalid_arguments"),
        ([""], "invalid_arguments"),
    ],
)
def test_what_cannot_start_says_which_way(worker: Worker, argv: list[str], how: str) -> None:
    ended, output = worker.command(argv)
    assert (ended.how, output) == (how, b"")
    assert ended.message
    assert still_serves(worker)


@pytest.mark.parametrize(
    ("text", "mode", "how"),
    [
        (b"#!/no/such/interpreter\n", 0o755, "cannot_run"),
        (b"not a program", 0o755, "cannot_run"),
        (b"#!/bin/sh\necho ran\n", 0o644, "cannot_run"),
        (b"#!/bin/sh\necho ran\n", 0o755, "exit"),
    ],
)
def test_a_file_that_is_found_runs_or_cannot(worker: Worker, text: bytes, mode: int, how: str) -> None:
    program = worker.zygote.directory / f"program-{worker.number}"
    program.write_bytes(text)
    program.chmod(mode)
    ended, output = worker.command([str(program)])
    assert ended.how == how
    assert output == (b"ran\n" if how == "exit" else b"")
    by_name, _ = worker.command([program.name], arguments={"env": {"PATH": f"/nowhere:{program.parent}:/bin"}})
    assert by_name.how == how


def test_the_program_is_looked_for_on_the_calls_path(worker: Worker) -> None:
    assert worker.command(["true"], arguments={"env": {"PATH": "/nowhere"}})[0].how == "not_found"


# ---------------------------------------------------------------- surroundings


def test_a_command_starts_from_a_clean_slate(worker: Worker) -> None:
    script = "echo $$ $(ps -o sid= -p $$); cat /proc/self/status; ls -l /proc/self/fd"
    _, output = worker.command(["sh", "-c", script])
    text = output.decode()
    pid, sid = text.splitlines()[0].split()
    assert pid == sid != "1"
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0
    assert int(status["SigIgn"], 16) & 0x7FFF_FFFF == 0  # glibc's spawn ignores its own two above them
    assert status["NoNewPrivs"] == "1"
    descriptors = [line.split(" -> ")[1] for line in text.splitlines() if " -> " in line]
    assert [target.partition(":")[0] for target in descriptors[:3]] == ["/dev/null", "pipe", "pipe"]
    assert len(descriptors) == 4  # the fourth is the listing's own


def test_no_descriptor_of_the_worker_or_a_plan_reaches_the_command(worker: Worker) -> None:
    ended, output = worker.command(None, tool="plan", arguments={"what": "inheritable"})
    assert output.split() == [b"0", b"1", b"2", b"3"]
    assert not ended.reusable  # the plan left it open


def test_the_environment_is_an_allow_list(worker: Worker) -> None:
    _, output = worker.command(["env"], arguments={"env": {"ADDED": "a"}}, key="k9")
    words = dict(line.split("=", 1) for line in output.decode().splitlines())
    assert words.pop("PWD", "") in ("", str(worker.scratch / "work"))
    assert words == {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "LANG": "C.UTF-8",
        "TMPDIR": str(worker.scratch / "tmp"),
        "PYTHONUNBUFFERED": "1",
        "DEBIAN_FRONTEND": "noninteractive",
        "GCM_INTERACTIVE": "never",
        "GIT_TERMINAL_PROMPT": "0",
        "PIP_NO_INPUT": "1",
        "ADDED": "a",
        "DEADLINED_IDEMPOTENCY_KEY": "k9",
    }
    _, output = worker.command(["env"], tool="private")
    words = dict(line.split("=", 1) for line in output.decode().splitlines())
    assert (words["HOME"], words["WANTED"]) == (str(worker.scratch / "tmp" / "home"), "w")
    assert "HIDDEN" not in words


def test_a_command_runs_where_it_is_told(worker: Worker) -> None:
    assert worker.command(["pwd"])[1].decode() == f"{worker.scratch / 'work'}\n"
    assert worker.command(["pwd"], cwd="/usr")[1] == b"/usr\n"
    assert worker.command(["pwd"], cwd="/usr", arguments={"cwd": "lib"})[1] in (b"/usr/lib\n",)
    assert worker.command(["pwd"], arguments={"cwd": "~"})[1] == b"/\n"
    assert worker.command(["pwd"], arguments={"cwd": "~/usr"})[1] == b"/usr\n"
    assert worker.command(["pwd"])[1].decode() == f"{worker.scratch / 'work'}\n"
    refused, _ = worker.command(["pwd"], cwd="/no/such/directory")
    assert (refused.how, worker.accepted) == ("bad_cwd", False)
    refused, _ = worker.command(["pwd"], arguments={"cwd": "no/such"})
    assert refused.how == "bad_cwd"


def test_stdin_is_the_calls_text_or_nothing(worker: Worker) -> None:
    assert worker.command(["cat"])[1] == b""
    text = "zeile\n" * 100_000
    assert worker.command(["cat"], arguments={"stdin": text})[1] == text.encode()


def test_a_temporary_file_of_the_plan_is_gone_afterwards(worker: Worker) -> None:
    ended, output = worker.command(None, tool="plan", arguments={"what": "temporary"})
    assert (output, ended.reusable) == (b"here", True)
    assert worker.command(["sh", "-c", "ls $TMPDIR"])[1] == b"home\n"


def test_a_plan_that_forks_runs_its_command_once(worker: Worker) -> None:
    ended, output = worker.command(None, tool="plan", arguments={"what": "fork"})
    assert (ended.how, ended.code, output) == ("exit", 0, b"run\n")
    assert worker.processes() == [worker.pid]


@pytest.mark.parametrize(
    ("what", "how", "code"),
    [
        ("raise", "raised", "no_plan"),
        ("invalid", "invalid_arguments", "invalid_arguments"),
        ("crash", "raised", "raised"),
        ("other", "raised", "content"),
        ("surrogate", "invalid_arguments", "invalid_arguments"),
    ],
)
def test_a_plan_that_is_none_ends_the_call(worker: Worker, what: str, how: str, code: str) -> None:
    ended, _ = worker.command(None, tool="plan", arguments={"what": what})
    assert (ended.how, ended.error_code) == (how, code)
    assert still_serves(worker)


# ---------------------------------------------------------------- output


def test_two_streams_when_asked(worker: Worker) -> None:
    with Capture(2) as capture:
        argv = ["sh", "-c", "echo out; echo error >&2"]
        worker.send("shell", {"argv": argv}, capture.descriptors, split_streams=True)
        capture.sent()
        ended = worker.result()
        assert (capture.read(0), capture.read(1)) == (b"out\n", b"error\n")
        assert ended.output_bytes == [4, 6]


def test_a_large_output_is_whole(worker: Worker) -> None:
    size = 30_000_000
    ended, output = worker.command(["sh", "-c", f"yes 0123456789 | head -c {size}"])
    assert (ended.output_bytes, len(output)) == ([size], size)
    assert output == (b"0123456789\n" * (size // 11 + 1))[:size]


def test_a_reopened_stdout_keeps_what_was_there(worker: Worker) -> None:
    _, output = worker.command(["sh", "-c", "echo a; echo b >/dev/stderr; echo c >/dev/stdout; echo d"])
    assert output == b"a\nb\nc\nd\n"


@pytest.mark.parametrize("more", [0, 1])
def test_the_limit_itself_is_allowed_and_one_byte_more_is_not(worker: Worker, more: int) -> None:
    ended, output = worker.command(["head", "-c", str(100_000 + more), "/dev/zero"], output_limit=100_000)
    assert ended.how == ("output_limit" if more else "exit")
    assert len(output) == 100_000


def test_a_flood_is_cut_at_the_limit_and_everything_ends(worker: Worker) -> None:
    ended, output = worker.command(["sh", "-c", "yes & yes & yes"], output_limit=1 << 20)
    assert (ended.how, len(output), ended.output_bytes) == ("output_limit", 1 << 20, [1 << 20])
    assert 2 <= ended.left_processes <= 4
    assert worker.processes() == [worker.pid]
    assert still_serves(worker)


def test_a_full_disk_is_not_the_commands_business(worker: Worker) -> None:
    """RLIMIT_FSIZE of the worker stands for the disk here: the raw file refuses more just the same."""
    small = worker.zygote.spawn(uid=worker.zygote.uid, limits=Limits(file_bytes=1 << 16))
    small.wait_ready()
    try:
        ended, output = small.command(["sh", "-c", "head -c 5000000 /dev/zero; exit 5"])
        assert (ended.how, ended.code, ended.output_bytes) == ("exit", 5, [5_000_000])
        assert len(output) <= 1 << 20
    finally:
        small.kill()
        assert small.gone()
        small.close()


def test_bytes_are_told_while_they_come(worker: Worker) -> None:
    worker.command(["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo x; sleep 0.06; done"])
    told = [progress.output_bytes for progress in worker.progress]
    assert 3 <= len(told) <= 7
    assert told == sorted(told)


def test_nobody_waits_for_a_daemon_that_does_not_read(worker: Worker) -> None:
    """More frames than the socket holds would block a writer that waits."""
    with Capture() as capture:
        worker.send("shell", {"argv": ["sh", "-c", "sleep 0.3; echo done"]}, capture.descriptors)
        capture.sent()
        time.sleep(0.6)
        assert worker.result().code == 0
        assert capture.read() == b"done\n"


# ---------------------------------------------------------------- the end


def test_the_end_of_the_command_is_the_end_of_the_call(worker: Worker) -> None:
    ended, output = worker.command(["sh", "-c", "sleep 600 & setsid sleep 600 & echo hi"])
    assert (ended.code, output, ended.left_processes) == (0, b"hi\n", 2)
    assert worker.processes() == [worker.pid]
    assert still_serves(worker)


def test_what_a_leftover_wrote_before_the_end_is_kept(worker: Worker) -> None:
    _, output = worker.command(["sh", "-c", "(echo late; sleep 600) & while :; do sleep 0.05; break; done; exit 0"])
    assert output == b"late\n"


def test_end_of_file_is_not_exit(worker: Worker) -> None:
    ended, output = worker.command(["sh", "-c", "echo x; exec >&- 2>&-; sleep 0.2; exit 7"])
    assert (ended.code, output) == (7, b"x\n")


def test_dead_orphans_do_not_pile_up_while_a_command_runs(worker: Worker) -> None:
    with Capture() as capture:
        script = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 & ); done; exec sleep 600"
        worker.send("shell", {"argv": ["sh", "-c", script]}, capture.descriptors)
        capture.sent()
        until = time.monotonic() + 20
        while len(worker.processes()) > 2 or time.monotonic() < until - 19.5:
            assert time.monotonic() < until, worker.processes()
            time.sleep(0.05)


def test_sigterm_reaches_the_command(worker: Worker) -> None:
    with Capture() as capture:
        script = "trap 'echo heard; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
        worker.send("shell", {"argv": ["sh", "-c", script]}, capture.descriptors)
        capture.sent()
        until = time.monotonic() + 20
        while capture.read() != b"ready\n" and time.monotonic() < until:
            time.sleep(0.01)
        signal.pidfd_send_signal(worker.pidfd, signal.SIGTERM)
        ended = worker.result()
        assert ended.code == 9
        assert capture.read().endswith(b"heard\n")


def has_something(capture: Capture) -> bool:
    """Whether the command has said anything: it lies in the pipe, or has been taken out of it."""
    return bool(capture.read()) or bool(select.select([capture.read_ends[0]], [], [], 0)[0])


def test_a_kill_ends_everything_and_loses_no_byte_that_was_in_the_pipe(worker: Worker) -> None:
    with Capture() as capture:
        script = "setsid sleep 600 & (sleep 600 &); echo before; sleep 600"
        worker.send("shell", {"argv": ["sh", "-c", script]}, capture.descriptors)
        capture.sent()
        until = time.monotonic() + 20
        while not (has_something(capture) and len(worker.processes()) == 5) and time.monotonic() < until:
            time.sleep(0.01)  # a shell on its way to `sleep` is a process too: what it says first says that it is there
        everybody = worker.processes()
        assert len(everybody) == 5
        worker.kill()
        assert worker.gone()
        assert not any(map(is_alive, everybody))
        rest = b""
        with contextlib.suppress(BlockingIOError):
            rest = os.read(capture.read_ends[0], 100)
        assert capture.read() + rest == b"before\n"
        with pytest.raises(OSError) if not rest else contextlib.nullcontext():
            assert os.read(capture.read_ends[0], 100) == b""
            raise OSError(errno.EIO, "end of file, as it should be")


def test_when_the_daemon_goes_the_command_goes(worker: Worker) -> None:
    with Capture() as capture:
        worker.send("shell", {"argv": ["sh", "-c", "sleep 600 & sleep 600"]}, capture.descriptors)
        capture.sent()
        until = time.monotonic() + 20
        while len(worker.processes()) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        everybody = worker.processes()
        worker.socket.close()
        assert worker.gone()
        assert not any(map(is_alive, everybody))


@pytest.mark.parametrize(
    "script",
    [
        "echo x > $TMPDIR/left",
        "echo x > left",
        "echo x > /dev/shm/left",
        "ipcmk -M 4096",
        "ipcmk -S 1",
        "ipcmk -Q",
        "echo x > $HOME/left",
        "chmod 000 .",
        "rmdir $PWD",
    ],
)
def test_a_command_that_leaves_files_retires_its_worker(worker: Worker, script: str) -> None:
    ended, _ = worker.command(["sh", "-c", script], tool="private")
    assert (ended.code, ended.reusable) == (0, False)


def test_a_call_without_its_descriptors_ends_the_worker(worker: Worker) -> None:
    assert worker.call("shell", {"argv": ["true"]}) is None
    assert worker.reaped().code == 71


def test_workers_run_side_by_side(spawn: Callable[..., Worker]) -> None:
    workers = [spawn() for _ in range(4)]
    results: list[tuple[object, bytes]] = []
    threads = [
        threading.Thread(target=lambda one=one: results.append(one.command(["sh", "-c", "sleep 0.2; echo $$"])))
        for one in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ended.code for ended, _ in results] == [0, 0, 0, 0]
