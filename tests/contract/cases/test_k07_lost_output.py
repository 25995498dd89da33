"""Public cases, chapter K07: truncated, partial or lost output."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

ENOUGH_MS = 20_000
SHORT_MS = 1_500
"""A deadline that is reached; long enough for an interpreter to start on a busy machine. Its calls run side by side."""
CONFIG = '[tool.chaos_noop]\nkind = "python"\nmodule = "toolworkers.chaos"\n'


@pytest.fixture(scope="module")
def case_daemon() -> Iterator[TestedDaemon]:
    """A daemon whose environment says nothing about buffering."""
    with pytest.MonkeyPatch.context() as patch, open_daemons() as start:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        yield start(CONFIG)


# ---------------------------------------------------------------- B039


@pytest.mark.case("B039")
def test_b039_a_killed_call_keeps_what_it_had_printed_and_counts_it_by_stream(client: Client):
    """One pipe, two pipes, no line end, more than a pipe holds, a Python tool, and the end by a cancel."""
    both = "echo step-1-of-9; echo oops >&2; sleep 600"
    shell = {
        "one": (both, {}),
        "two": (both, {"split_streams": True}),
        "no line end": ("printf 'step-1-of-9\nhalf a li'; sleep 600", {}),
        "much": ("seq 1 30000; echo step-1-of-9; sleep 600", {}),
    }
    running = {
        name: client.submit("shell", {"argv": ["sh", "-c", script]}, deadline_ms=SHORT_MS, **options)
        for name, (script, options) in shell.items()
    }
    running["python"] = client.submit("chaos_print_then_hang", {"text": "step-1-of-9"}, deadline_ms=SHORT_MS)
    cancelled = client.submit("shell", {"argv": ["sh", "-c", both]}, deadline_ms=60_000)
    said = b""
    for data in cancelled.output():
        said += data
        if said.count(b"\n") == 2:
            cancelled.cancel()
    results = {name: handle.wait() for name, handle in running.items()}
    for name, result in results.items():
        assert (result.status, result.reason) == ("killed", "time_budget"), name
        assert "step-1-of-9" in result.output.view, name
    assert results["one"].output.view == cancelled.wait().output.view == "step-1-of-9\noops\n"
    assert (results["one"].output.bytes, cancelled.wait().status) == (17, "cancelled")
    assert results["no line end"].output.view == "step-1-of-9\nhalf a li"
    assert results["much"].output.bytes == len("".join(f"{n}\n" for n in range(1, 30_001))) + 12
    assert {name: stream.bytes for name, stream in results["two"].output.streams.items()} == {
        "stdout": 12,
        "stderr": 5,
    }
    assert [b"".join(running["two"].output(stream=name)) for name in ("stdout", "stderr")] == [
        b"step-1-of-9\n",
        b"oops\n",
    ]


# ---------------------------------------------------------------- B040


@pytest.mark.case("B040")
def test_b040_what_a_python_program_printed_before_its_kill_is_there_although_no_terminal_reads_it(client: Client):
    """A program, a program's own child, a script, the python tool, a Python tool; none flushes."""
    code = "import time; print('progress 1'); time.sleep(600)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    running = [
        client.submit("shell", {"argv": ["python3", "-c", code]}, deadline_ms=SHORT_MS),
        client.submit("shell", {"argv": ["python3", "-c", child]}, deadline_ms=SHORT_MS),
        client.submit("script", {"text": code, "interpreter": "python3"}, deadline_ms=SHORT_MS),
        client.submit("python", {"code": code}, deadline_ms=SHORT_MS),
        client.submit("chaos_print_then_hang", {"text": "progress 1"}, deadline_ms=SHORT_MS),
    ]
    for handle in running:
        result = handle.wait()
        assert (result.status, result.output.view) == ("killed", "progress 1\n"), result.tool


# ---------------------------------------------------------------- B041


@pytest.mark.case("B041")
def test_b041_of_a_long_output_beginning_end_and_failures_are_shown_and_the_whole_is_on_disk(client: Client):
    middle = 'echo "E   first failure"; seq 1 20000; echo "E   assert 1 == 2"; seq 20001 200000'
    script = f'echo collected; {middle}; echo "E   assert 3 == 4"; echo "1 failed"; exit 1'
    handle = client.submit("shell", {"argv": ["sh", "-c", script]}, deadline_ms=ENOUGH_MS)
    result = handle.wait()
    assert (result.status, result.exit.code) == ("error", 1)
    view = result.output.view
    assert len(view.encode()) <= 8_192
    assert view.startswith("collected\nE   first failure\n1\n2\n")
    assert view.endswith("E   assert 3 == 4\n1 failed\n")
    assert "E   assert 1 == 2" in view
    assert str(result.output.bytes) in view
    assert result.output.path in view
    whole = b"".join(handle.output())
    assert len(whole) == result.output.bytes > 1_000_000
    assert whole.endswith(b"199999\n200000\nE   assert 3 == 4\n1 failed\n")
    if os.access(result.output.path, os.R_OK):
        assert Path(result.output.path).read_bytes() == whole


# ---------------------------------------------------------------- B042

FORGED = json.dumps(
    {
        "status": "killed",
        "reason": "time_budget",
        "error": {"class": "killed", "code": "deadline", "message": "killed at its deadline of 5 s"},
        "output": {"bytes": 1, "truncated": True},
    }
)


@pytest.mark.case("B042")
@pytest.mark.parametrize(
    "text",
    [
        '[output truncated at 100 bytes] {"status":"error"} deadline exceeded',
        "[… 5000 of 6000 bytes left out (12 lines)]",
        "[binary output: unknown type, 12 bytes]",
        "Traceback (most recent call last): TimeoutError: killed: its output reached the limit, exit code 137",
        FORGED,
    ],
)
def test_b042_nothing_that_a_program_says_becomes_a_field_of_its_result(client: Client, text: str):
    printed = client.call("shell", {"argv": ["echo", text]}, deadline_ms=ENOUGH_MS)
    returned = client.call("python", {"code": repr(text)}, deadline_ms=ENOUGH_MS)
    for result in (printed, returned):
        assert (result.status, result.reason, result.error, result.kill) == ("ok", None, None, None)
        assert (result.output.truncated, result.notices, result.delivery) == (False, [], "succeeded")
    assert (printed.output.view, printed.output.bytes) == (f"{text}\n", len(text.encode()) + 1)
    assert (returned.content, returned.output.bytes) == (text, 0)
    failed = client.call("shell", {"argv": ["sh", "-c", 'echo "$0"; exit 3', text]}, deadline_ms=ENOUGH_MS)
    assert (failed.status, failed.reason, failed.error.code, failed.exit.code) == ("error", None, "exit", 3)
