from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from supervisor import logs
from supervisor.core.repeats import RepeatSettings


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """(read end, write end); both block."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def lines(descriptor: int) -> list[dict[str, object]]:
    return [json.loads(line) for line in os.read(descriptor, 1 << 20).splitlines()]


def test_what_is_written_is_a_line(pipe: tuple[int, int]) -> None:
    logs.Log(pipe[1]).write('{"event": "x"}')
    assert lines(pipe[0]) == [{"event": "x"}]


def test_lines_that_a_full_disk_did_not_take_are_counted_and_told_when_it_takes_them_again(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, write = logs.Log(pipe[1]), os.write

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        log.write('{"event": "lost"}')
    assert log.trouble == "the log cannot be written: No space left on device"
    monkeypatch.setattr(os, "write", write)
    log.write('{"event": "kept"}')
    assert log.trouble is None
    assert [(line["event"], line.get("count")) for line in lines(pipe[0])] == [("log_lines_lost", 3), ("kept", None)]


def test_what_was_lost_is_told_although_nothing_else_is_logged(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.Log(pipe[1])
    with monkeypatch.context() as patch:
        patch.setattr(log, "_put", lambda _text: False)
        log.write("lost")
    log.sum_up(structlog.get_logger())
    assert [line["count"] for line in lines(pipe[0])] == [1]


def test_a_line_that_was_written_in_part_is_lost_and_the_next_one_begins_a_line(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, write = logs.Log(pipe[1]), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
        log.write('{"event": "torn"}')
    log.write('{"event": "whole"}')
    torn, *whole = os.read(pipe[0], 4096).splitlines()
    assert (torn, [json.loads(line)["event"] for line in whole]) == (b'{"eve', ["log_lines_lost", "whole"])


def test_a_reader_that_stopped_reading_stops_nobody(pipe: tuple[int, int]) -> None:
    log = logs.Log(pipe[1])
    for _ in range(3_000):
        log.write("x" * 100)
    while len(os.read(pipe[0], 1 << 20)) == 1 << 20:
        pass
    log.write('{"event": "read again"}')
    assert [line["event"] for line in lines(pipe[0])] == ["log_lines_lost", "read again"]


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "nobody reads"])
def test_a_stderr_that_is_not_there_is_no_trouble(closed: bool) -> None:
    read, write = os.pipe()
    os.close(read)
    log = logs.Log(write)
    os.close(write) if closed else None
    log.write("x")
    assert log.trouble is None
    None if closed else os.close(write)


def test_the_same_event_without_end_is_a_few_lines(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.Log(pipe[1], RepeatSettings(burst=2, window_ms=1_000))
    told = 0
    for at in (0, 0, 0, 0, 2_000_000_000):
        monkeypatch.setattr(logs, "now_ns", lambda at=at: at)
        try:
            event = log.only_news(None, "error", {"event": "again"})
            told += 1
        except structlog.DropEvent:
            continue
    assert (told, event) == (3, {"event": "again", "left_out_before": 2})


def test_no_text_makes_a_line_long() -> None:
    event = logs.short(None, "", {"event": "x", "error": "a" * 50_000 + "the end", "count": 3})
    assert len(event["error"]) < 5_000
    assert event["error"].endswith("the end")
    assert event["count"] == 3


def test_no_text_steers_the_terminal_it_is_shown_on() -> None:
    event = logs.without_steering(None, "", {"event": "x", "error": "\x1b]0;title\x07\r\x9b2J\nline\ttab", "n": 1})
    assert event == {"event": "x", "error": "?]0;title???2J\nline\ttab", "n": 1}


@pytest.mark.parametrize("terminal", [True, False])
def test_the_log_says_what_was_raised_where(terminal: bool) -> None:
    code = (
        "import sys; sys.stderr.isatty = lambda: {0}\nfrom supervisor.logs import open_log\nlog = open_log()\n"
        "try:\n    raise ValueError('the \\x1b[2J reason')\nexcept ValueError:\n    log.exception('supervisor_bug')\n"
    )
    done = subprocess.run([sys.executable, "-c", code.format(terminal)], capture_output=True, text=True)
    assert "ValueError" in done.stderr
    assert "reason" in done.stderr
    assert "\x1b[2J" not in done.stderr
