"""What a call writes: one cap for every way of writing, exact counts, views that say what they leave out."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import CallResult, Client, RequestRefused
from supervisor.core.folding import fold
from supervisor.core.observations import observation
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

CONFIG = '[tool.chaos_flood]\nkind = "python"\nmodule = "toolworkers.chaos"\n'
ENOUGH_MS = 60_000


@pytest.fixture(scope="module")
def daemon_of_floods() -> Iterator[TestedDaemon]:
    with open_daemons() as start:
        yield start(CONFIG)


@pytest.fixture
def client(daemon_of_floods: TestedDaemon) -> Iterator[Client]:
    with Client(daemon_of_floods.socket) as client:
        yield client


def sh(client: Client, script: str, **options: Any) -> CallResult:
    return client.call("shell", {"argv": ["sh", "-c", script]}, **{"deadline_ms": ENOUGH_MS, **options})


def raw(result: CallResult) -> bytes:
    assert result.output.path is not None
    return Path(result.output.path).read_bytes()


def test_a_command_that_writes_too_much_is_killed_at_exactly_its_limit(client: Client) -> None:
    result = sh(client, "yes", max_output_bytes=100_000)
    assert (result.status, result.reason, result.output.truncated) == ("killed", "output_limit", True)
    assert result.output.bytes == len(raw(result)) == 100_000
    assert result.kill is not None
    assert result.kill.confirmed


def test_two_streams_share_one_limit(client: Client) -> None:
    result = sh(client, "yes out & yes err >&2", max_output_bytes=100_000, split_streams=True)
    assert (result.status, result.reason) == ("killed", "output_limit")
    assert result.output.bytes == 100_000
    for info in result.output.streams.values():
        assert info.bytes == (os.path.getsize(info.path) if info.path else 0)


def test_exactly_the_limit_is_allowed_and_nothing_is_truncated(client: Client) -> None:
    result = sh(client, "head -c 1000 /dev/zero | tr '\\0' x", max_output_bytes=1_000)
    assert (result.status, result.output.truncated, result.output.bytes) == ("ok", False, 1_000)


def test_a_python_tool_that_prints_too_much_is_killed_and_no_more_than_its_limit_is_kept(client: Client) -> None:
    result = client.call("chaos_flood", deadline_ms=ENOUGH_MS, max_output_bytes=100_000)
    assert (result.status, result.reason, result.output.truncated) == ("killed", "output_limit", True)
    assert result.output.bytes == len(raw(result)) == 100_000


def test_a_python_tool_that_printed_too_much_and_returned_came_to_its_limit_all_the_same(client: Client) -> None:
    result = client.call("python", {"code": "print('x' * 200_000)\n7"}, deadline_ms=ENOUGH_MS, max_output_bytes=100_000)
    assert (result.status, result.reason, result.content) == ("killed", "output_limit", None)
    assert result.output.bytes == len(raw(result)) == 100_000


def test_a_python_tool_that_takes_disk_without_printing_comes_to_its_limit_too(client: Client) -> None:
    code = (
        "import ctypes, time\nprint('before', flush=True)\n"
        "if ctypes.CDLL(None).fallocate(1, 1, 0, ctypes.c_int64(180 << 20)):\n"  # 1: FALLOC_FL_KEEP_SIZE
        "    print('this file system cannot do it', flush=True)\n"
        "time.sleep(60)"
    )
    result = client.call("python", {"code": code}, deadline_ms=20_000, max_output_bytes=100_000)
    assert (result.status, result.reason, result.output.view) == ("killed", "output_limit", "before\n")
    assert os.stat(result.output.path or "").st_blocks * 512 < 1 << 20, "and it is given back"


def test_a_value_over_the_limit_comes_to_it_like_output_and_does_not_grow_the_daemon(
    client: Client, daemon_of_floods: TestedDaemon
) -> None:
    before = memory(daemon_of_floods.pid)
    result = client.call("python", {"code": "'x' * 40_000_000"}, deadline_ms=ENOUGH_MS, max_output_bytes=32_000_000)
    assert (result.status, result.reason, result.delivery) == ("killed", "output_limit", "unknown")
    assert memory(daemon_of_floods.pid) - before < 8 << 20


def memory(pid: int) -> int:
    """Bytes that it allocated. (Of a daemon, which is not dumpable, `status` is all that everybody may read.)"""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


@pytest.mark.parametrize(
    ("split", "written", "view"),
    [
        (True, {"stdout": b"step-1-of-9\n", "stderr": b"oops\n"}, "[stdout]\nstep-1-of-9\n[stderr]\noops\n"),
        (False, {"both": b"step-1-of-9\noops\n"}, "step-1-of-9\noops\n"),
    ],
    ids=["apart", "together"],
)
def test_each_stream_of_a_killed_call_is_counted_and_the_view_has_both(
    client: Client, split: bool, written: dict[str, bytes], view: str
) -> None:
    argv = ["sh", "-c", "echo step-1-of-9; echo oops >&2; sleep 300"]
    call = client.submit("shell", {"argv": argv}, deadline_ms=ENOUGH_MS, split_streams=split)
    while {name: b"".join(call.output(stream=name, follow=False)) for name in written} != written:
        assert call.result() is None
        time.sleep(0.02)
    call.cancel()
    result = call.wait()
    assert {name: info.bytes for name, info in result.output.streams.items()} == {
        name: len(data) for name, data in written.items()
    }
    assert result.output.view == view


def test_a_silent_stream_is_listed_with_no_bytes_and_no_file(client: Client) -> None:
    for split, names in ((False, {"both"}), (True, {"stdout", "stderr"})):
        result = sh(client, "true", split_streams=split)
        assert {name: (info.bytes, info.path) for name, info in result.output.streams.items()} == dict.fromkeys(
            names, (0, None)
        )
        assert (result.output.path, result.output.view) == (None, "")
    only_errors = sh(client, "echo oops >&2", split_streams=True).output
    assert only_errors.streams["stdout"].bytes == 0
    assert only_errors.path == only_errors.streams["stderr"].path
    assert only_errors.view == "oops\n"
    printed_nothing = client.call("python", {"code": "1"}, deadline_ms=ENOUGH_MS)
    assert printed_nothing.output.streams["both"].bytes == 0


@pytest.mark.behaviour("M048")
@pytest.mark.behaviour("M049")
@pytest.mark.behaviour("M055")
@pytest.mark.parametrize("last", [100_000, 20_000], ids=["two windows", "one text"])
def test_a_cut_view_counts_exactly_what_it_keeps_and_leaves_out_and_says_where_the_rest_is(
    client: Client, last: int
) -> None:
    """B043: 588 895 bytes are more than the two windows that a view is made from."""
    result = sh(client, f"seq 1 {last}")
    view = result.output.view
    (marker,) = re.findall(r"^\[… left out: .*\]$", view, re.MULTILINE)
    head, tail = view.split(marker + "\n")
    shown = [int(line) for line in (head + tail).split()]
    missing, missing_lines, kept, kept_lines = map(int, re.findall(r"(\d+) (?:bytes|lines)", marker))
    assert kept_lines == len(shown)
    assert missing_lines == last - len(shown)
    assert kept == len(head) + len(tail)
    assert missing + kept == result.output.bytes == len(raw(result))
    assert marker.endswith(f"whole output: {result.output.path}]")
    assert (shown[0], shown[-1]) == (1, last)
    context = observation(result)  # what a model is shown
    assert context.endswith(view)
    assert len(view.encode()) <= 8_192
    assert len(context) - len(view) < 200
    folded = fold(1, [result])  # what stays of it when its step is done
    assert len(folded.line) < 400
    assert folded.raw[0].sha256 == (hashlib.sha256(raw(result)).hexdigest() if result.output.sha256 else None)
    assert folded.raw[0].path in folded.line


def test_bytes_that_are_no_text_are_shown_replaced_and_flagged_and_kept_as_they_were(client: Client) -> None:
    """B044."""
    result = sh(client, r'printf "head\377\376\000tail"; exit 3')
    assert result.output.view == "head\ufffd\ufffd\ufffdtail"
    assert result.output.invalid_utf8
    assert raw(result) == b"head\xff\xfe\0tail"
    assert result.output.sha256 == hashlib.sha256(raw(result)).hexdigest()
    assert (result.status, result.exit and result.exit.code) == ("error", 3)
    assert not sh(client, "echo 数据-é").output.invalid_utf8


def test_colours_and_redrawn_lines_are_folded_in_the_view_alone(client: Client) -> None:
    """B047."""
    code = (
        "import sys\nE, R = chr(27), chr(13)\n"
        "for i in range(101): sys.stdout.write(E + '[2K' + R + 'pull %d%%' % i)\n"
        "print(); print(E + '[31mFAILED' + E + '[0m')"
    )
    result = client.call("shell", {"argv": ["python3", "-c", code]}, deadline_ms=ENOUGH_MS)
    assert result.output.view == "pull 100%\nFAILED\n"
    assert raw(result).count(b"\x1b[2K") == 101


def test_six_hundred_megabytes_under_a_small_cap_leave_the_daemon_as_it_was(
    client: Client, daemon_of_floods: TestedDaemon
) -> None:
    """B038."""
    sh(client, "seq 1 200000")
    before = memory(daemon_of_floods.pid)
    result = sh(client, "head -c 600000000 /dev/zero | tr '\\0' a", max_output_bytes=64 << 10)
    assert (result.status, result.reason, result.output.bytes) == ("killed", "output_limit", 64 << 10)
    assert memory(daemon_of_floods.pid) - before < 4 << 20


def sealed(client: Client, call: str) -> list[Any]:
    """The `output_sealed` events of a call, when there are some."""
    until = time.monotonic() + 20
    while not (found := [event for event in client.events(call=call) if event.kind == "output_sealed"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def test_the_digest_of_a_large_output_comes_later_as_an_event_and_the_result_stays_as_it_was_told(
    client: Client,
) -> None:
    result = sh(client, "seq 1 400000")
    assert (result.output.bytes > 1 << 20, result.output.sha256) == (True, None)
    (event,) = sealed(client, result.call)
    assert event.data == {
        "stream": "both",
        "bytes": result.output.bytes,
        "sha256": hashlib.sha256(raw(result)).hexdigest(),
    }
    assert client.handle(result.call).result() == result


def test_a_raw_output_that_is_not_kept_any_more_is_missed_by_name_and_its_result_stays(client: Client) -> None:
    result = sh(client, "echo hello")
    os.unlink(result.output.path or "")
    with pytest.raises(RequestRefused, match="not kept any more") as refused:
        list(client.handle(result.call).output())
    assert refused.value.error.code == "output_gone"
    assert client.handle(result.call).result() == result
    assert list(client.handle(sh(client, "true").call).output()) == []


def test_over_the_quota_the_oldest_raw_outputs_go_and_every_result_stays(start_daemon: Any) -> None:
    daemon = start_daemon('[daemon]\noutput_quota_bytes = "1MiB"\n')
    with Client(daemon.socket) as client:
        results = [sh(client, f"head -c 400000 /dev/zero | tr '\\0' {letter}") for letter in "abcd"]
        until = time.monotonic() + 20
        while os.path.exists(results[1].output.path or ""):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert [os.path.exists(result.output.path or "") for result in results] == [False, False, True, True]
        assert [client.handle(result.call).result() for result in results] == results
