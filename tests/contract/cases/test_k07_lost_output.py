"""Public cases, chapter K07: truncated, partial or lost output."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.cases.by_deadline import killed_after
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

ENOUGH_MS = 20_000
COUNTS = re.compile(r"^\[… left out: (\d+) bytes in (\d+) lines; kept: (\d+) bytes in (\d+) lines.*\]$", re.M)
CONFIG = f'[tool.case_tools]\nkind = "python"\nmodule = "case_tools"\npath = ["{os.path.dirname(__file__)}"]\n'


@pytest.fixture(scope="module")
def module_daemon() -> Iterator[TestedDaemon]:
    """A daemon whose environment says nothing about buffering."""
    with pytest.MonkeyPatch.context() as patch, open_daemons() as start:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        yield start(CONFIG)


# ---------------------------------------------------------------- B039


@pytest.mark.case("B039")
@pytest.mark.parametrize(
    ("script", "out", "err"),
    [
        ("echo step-1-of-9; echo oops >&2", b"step-1-of-9\n", b"oops\n"),
        ("printf 'step-1-of-9\nhalf a li'", b"step-1-of-9\nhalf a li", b""),
        ("seq 1 30000 >&2; echo step-1-of-9", b"step-1-of-9\n", b"".join(b"%d\n" % n for n in range(1, 30_001))),
    ],
    ids=["short", "no line end", "more than a pipe holds"],
)
def test_b039_a_deadline_keeps_what_was_printed_before_it_and_counts_it_by_stream(
    client: Client, open_directory: Path, script: str, out: bytes, err: bytes
):
    point = open_directory / "printed"
    arguments = {"argv": ["sh", "-c", f"{script}; touch {point}; sleep 600"]}
    one = killed_after(point, client, "shell", arguments)
    two = killed_after(point, client, "shell", arguments, split_streams=True)
    whole = b"".join(one.output())
    assert sorted(whole.splitlines()) == sorted((out + err).splitlines())
    assert one.wait().output.bytes == two.wait().output.bytes == len(out) + len(err)
    for name, written in (("stdout", out), ("stderr", err)):
        assert b"".join(two.output(stream=name)) == written
        stream = two.wait().output.streams.get(name)
        assert (stream.bytes if stream else 0) == len(written)
    if len(whole) < 100:
        assert one.wait().output.view == whole.decode()
        assert all(line in two.wait().output.view for line in whole.decode().splitlines())
    assert one.wait().output.view.splitlines()[-1] == whole.decode().splitlines()[-1]


@pytest.mark.case("B039")
def test_b039_a_cancel_keeps_what_was_printed_before_it(client: Client):
    script = "echo step-1-of-9; echo oops >&2; sleep 600"
    handle = client.submit("shell", {"argv": ["sh", "-c", script]}, deadline_ms=60_000)
    said = b""
    for data in handle.output():
        said += data
        if said.count(b"\n") == 2:
            handle.cancel()
    assert (handle.wait().status, handle.wait().output.view) == ("cancelled", "step-1-of-9\noops\n")


@pytest.mark.case("B039")
def test_b039_the_view_of_a_call_with_two_streams_shows_both(client: Client):
    script = "echo step-1-of-9; echo oops >&2; exit 3"
    result = client.call("shell", {"argv": ["sh", "-c", script]}, deadline_ms=ENOUGH_MS, split_streams=True)
    assert "step-1-of-9\n" in result.output.view
    assert "oops\n" in result.output.view


# ---------------------------------------------------------------- B040


PROGRESS = "import time; print('progress 1'); open({point!r}, 'w').close(); time.sleep(600)"
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"


@pytest.mark.case("B040")
@pytest.mark.parametrize("kind", ["program", "its child", "script", "python", "a Python tool"])
def test_b040_what_a_python_program_printed_before_its_kill_is_there_although_no_terminal_reads_it(
    client: Client, open_directory: Path, kind: str
):
    """None of them flushes."""
    point = open_directory / "printed"
    code = PROGRESS.format(point=str(point))
    tool, arguments = {
        "program": ("shell", {"argv": ["python3", "-c", code]}),
        "its child": ("shell", {"argv": ["python3", "-c", CHILD.format(code=code)]}),
        "script": ("script", {"text": code, "interpreter": "python3"}),
        "python": ("python", {"code": code}),
        "a Python tool": ("print_then_hang", {"text": "progress 1", "point": str(point)}),
    }[kind]
    result = killed_after(point, client, tool, arguments).wait()
    assert (result.status, result.output.view, result.output.bytes) == ("killed", "progress 1\n", 11)


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
    marker = COUNTS.search(view)
    assert marker, view[3_000:3_600]
    assert int(marker[1]) + int(marker[3]) == result.output.bytes
    assert result.output.path in marker.group()
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


# ---------------------------------------------------------------- B043


@pytest.mark.case("B043")
@pytest.mark.parametrize(
    ("script", "size", "lines"),
    [
        ("seq 1 100000", 588_895, 100_000),
        ("seq 1 20000", 108_894, 20_000),
        ("seq 1 20000; printf 'no line end'", 108_905, 20_001),
        ("seq 1 500000", 3_388_895, 500_000),
    ],
)
def test_b043_a_cut_says_exactly_how_much_is_shown_and_how_much_is_missing(client: Client, script, size, lines):
    result = client.call("shell", {"argv": ["sh", "-c", script]}, deadline_ms=ENOUGH_MS)
    view = result.output.view
    marker = COUNTS.search(view)
    assert marker, view[3_000:3_600]
    missing_bytes, missing_lines, kept_bytes, kept_lines = map(int, marker.groups())
    assert (missing_bytes + kept_bytes, missing_lines + kept_lines) == (result.output.bytes, lines) == (size, lines)
    shown = view[: marker.start()] + view[marker.end() + 1 :]
    assert (len(shown), len(shown.splitlines())) == (kept_bytes, kept_lines)
    assert result.output.path in marker.group()
    assert Path(result.output.path).stat().st_size == size


@pytest.mark.case("B043")
def test_b043_a_call_that_its_cap_ended_says_so_and_shows_what_it_kept(client: Client):
    result = client.call("shell", {"argv": ["seq", "1", "100000"]}, deadline_ms=ENOUGH_MS, max_output_bytes=1_024)
    assert (result.status, result.reason, result.output.truncated) == ("killed", "output_limit", True)
    assert result.output.bytes == len(result.output.view) == 1_024
