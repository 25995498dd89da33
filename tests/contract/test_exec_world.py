"""What a command under ``deadlined exec`` sees of the world, what it must not have, and what a cold start may load."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract
Run = Callable[..., "subprocess.CompletedProcess[str]"]
REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_command_has_the_callers_own_descriptors_and_none_of_ours(run_exec: Run) -> None:
    read_end, write_end = os.pipe()
    run_exec(
        "--",
        "sh",
        "-c",
        "readlink /proc/self/fd/1; ls /proc/self/fd",
        stdout=write_end,
        stderr=subprocess.PIPE,
        capture_output=False,
    )
    link, *numbers = os.read(read_end, 4096).decode().split()
    assert link == os.readlink(f"/proc/self/fd/{write_end}"), "no byte passes deadlined"
    assert numbers == ["0", "1", "2", "3"], "3 is the directory that ls reads"
    os.close(read_end)
    os.close(write_end)


def test_descriptors_that_the_caller_passes_on_arrive(run_exec: Run) -> None:
    read_end, write_end = os.pipe()
    run_exec("--", "bash", "-c", f"echo through >&{write_end}", pass_fds=[write_end])
    os.close(write_end)
    assert os.read(read_end, 100) == b"through\n"
    os.close(read_end)


def test_a_closed_standard_descriptor_stays_closed(exec_words: list[str]) -> None:
    line = 'exec "$@" <&- >&-'
    words = ["sh", "-c", line, "sh", *exec_words, "--", "sh", "-c", "ls /proc/self/fd >&2; exit 8"]
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", timeout=30)
    assert done.returncode == 8
    assert done.stderr.split() == ["0", "1", "2"], "0: the directory that ls reads; 1: the shell's own redirection"


def test_the_command_is_not_pid_1_and_sees_its_own_processes_only(run_exec: Run) -> None:
    done = run_exec("--", "sh", "-c", "echo $$; ls /proc | grep -c '^[0-9]'")
    pid, processes = map(int, done.stdout.split())
    assert pid > 1
    assert processes <= 4  # pid 1, sh, ls, grep


def test_the_command_has_few_privileges_and_is_offered_to_the_oom_killer(run_exec: Run) -> None:
    done = run_exec("--", "sh", "-c", "cat /proc/self/status /proc/self/oom_score_adj")
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    effective = int(status["CapEff"], 16)
    sys_ptrace, sys_admin, mknod = 1 << 19, 1 << 21, 1 << 27
    assert effective & (sys_ptrace | sys_admin | mknod) == 0
    if status["Uid"].split()[0] != "0":
        assert effective == 0
    assert status["NoNewPrivs"].strip() == "1"
    assert done.stdout.split()[-1] == "500"


@pytest.mark.parametrize("nice", [0, 7])
def test_the_command_keeps_the_callers_priority(run_exec: Run, nice: int) -> None:
    done = run_exec("--", "sh", "-c", "cat /proc/self/stat", preexec_fn=lambda: os.nice(nice))
    fields = done.stdout.rpartition(")")[2].split()
    assert int(fields[16]) == nice
    assert (fields[37], fields[38]) == ("0", "0"), "no real-time priority, SCHED_OTHER"


def test_environment_and_place_are_the_callers(run_exec: Run, open_directory: Path) -> None:
    done = run_exec(
        "--",
        "sh",
        "-c",
        "pwd; echo $MINE $TMPDIR $HOME",
        cwd=open_directory,
        env={"MINE": "x", "TMPDIR": "/tmp", "HOME": "/h"},
    )
    assert done.stdout.split() == [str(open_directory), "x", "/tmp", "/h"]


def test_a_variable_that_python_sets_for_itself_is_not_passed_on(exec_words: list[str]) -> None:
    done = subprocess.run(
        [*exec_words, "--", "env"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, cwd="/"
    )
    assert "LC_CTYPE" not in done.stdout
    words = [*exec_words, "--", "env"]
    done = subprocess.run(
        words, env={"PATH": os.environ["PATH"], "LC_CTYPE": "C.UTF-8"}, capture_output=True, text=True, cwd="/"
    )
    assert "LC_CTYPE=C.UTF-8\n" in done.stdout


def test_a_clean_environment_has_what_is_listed_and_what_is_given(run_exec: Run) -> None:
    done = run_exec("--clean-env", "--env", "A=1=2", "--env", "B=", "--", "env", env={"SECRET": "s", "LC_ALL": "C"})
    lines = done.stdout.splitlines()
    assert {"A=1=2", "B=", "LC_ALL=C"} <= set(lines)
    assert "SECRET=s" not in lines


def test_the_program_is_looked_for_on_the_calls_path_and_in_its_place(run_exec: Run, open_directory: Path) -> None:
    program = open_directory / "mine"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    assert run_exec("--env", f"PATH={open_directory}", "--", "mine").stdout == "found\n"
    assert run_exec("--cwd", str(open_directory), "--", "./mine").stdout == "found\n"
    assert run_exec("--", "mine").returncode == 127


def test_standard_input_comes_from_the_caller_or_a_file(run_exec: Run, open_directory: Path) -> None:
    (open_directory / "input").write_text("from a file")
    assert run_exec("--", "cat", input="typed").stdout == "typed"
    assert run_exec("--stdin", "-", "--", "cat", input="typed").stdout == "typed"
    assert run_exec("--stdin", f"{open_directory}/input", "--", "cat", input="typed").stdout == "from a file"


def test_a_host_without_namespaces_is_told_what_is_missing_where_they_are_demanded(run_exec: Run) -> None:
    done = run_exec("--min-isolation", "contain", "--", "echo", "never", preexec_fn=refuse_namespaces)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("\n") == 1
    assert "no pid namespace" in done.stderr
    assert "user namespaces" in done.stderr


def refuse_namespaces() -> None:
    """Let unshare(2) fail in this process and its children, as Docker's default profile does (seccomp(2))."""
    unshare = {"x86_64": 272, "aarch64": 97, "riscv64": 97}[platform.machine()]
    load_number, equal = (0x20, 0, 0, 0), (0x15, 0, 1, unshare)
    refuse, allow = (0x06, 0, 0, 0x0005_0001), (0x06, 0, 0, 0x7FFF_0000)  # EPERM
    program = b"".join(struct.pack("HBBI", *step) for step in (load_number, equal, refuse, allow))
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HL", 4, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0) == 0, os.strerror(ctypes.get_errno())


def test_a_foreign_supervisor_is_named_before_anything_else(run_exec: Run, open_directory: Path) -> None:
    foreign = open_directory / "supervisor"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("# somebody else's\n")
    done = run_exec("--", "echo", "never", cwd=open_directory)
    assert (done.returncode, done.stdout) == (125, "")
    assert str(foreign / "__init__.py") in done.stderr
    assert "pipx install deadlined" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_cold_exec_loads_nothing_heavy() -> None:
    modules = "deadlined.__main__, deadlined.cli.exec, protocol, supervisor"
    script = f"import sys; sys.path.append({str(REPOSITORY)!r}); import {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    heavy = "argparse asyncio click collections contextlib dataclasses enum functools importlib inspect json logging"
    heavy += " msgspec pathlib re resource signal socket subprocess tempfile threading traceback trio typing"
    assert set(heavy.split()) & set(done.stdout.split()) == set()
