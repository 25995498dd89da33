"""``deadlined output CALL --follow`` as people use it: live, into pipes that close, at terminals, beside floods."""

from __future__ import annotations

import os
import pty
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined import Client
from deadlined.client import CallHandle
from tests.contract.conftest import CommandLine, TestedDaemon

pytestmark = pytest.mark.contract

LIVE = "echo one; sleep 300"
COLOURED = r"printf '\033]0;title\007\033[31mred\033[0m 1%%\r2%%\n'"


@pytest.fixture
def client(standing_daemon: TestedDaemon) -> Iterator[Client]:
    with Client(standing_daemon.socket) as client:
        yield client


def started(client: Client, script: str, **options: int) -> CallHandle:
    return client.submit("shell", {"argv": ["sh", "-c", script]}, deadline_ms=120_000, **options)


def test_it_shows_what_is_written_while_the_call_runs_and_ends_when_the_call_does(
    client: Client, deadlined: CommandLine
) -> None:
    call = started(client, LIVE)
    follower = deadlined.start("output", call.call, "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "one\n"
    assert call.result() is None
    call.cancel()
    assert follower.communicate(timeout=30) == ("", "")
    assert follower.returncode == 0


def test_a_character_written_byte_by_byte_arrives_whole(client: Client, deadlined: CommandLine) -> None:
    """B045, live: no chunk is decoded on its own."""
    code = "import os, time\nfor b in '\u2603 数据'.encode(): os.write(1, bytes([b])); time.sleep(0.03)"
    call = client.submit("shell", {"argv": ["python3", "-c", code]}, deadline_ms=60_000)
    assert deadlined("output", call.call, "--follow").stdout == "\u2603 数据"
    assert b"".join(call.output()).decode() == "\u2603 数据"


def test_ctrl_c_ends_the_looking_in_silence_and_not_the_call(client: Client, deadlined: CommandLine) -> None:
    call = started(client, LIVE)
    follower = deadlined.start("output", call.call, "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "one\n"
    follower.send_signal(signal.SIGINT)
    assert follower.communicate(timeout=30) == ("", "\n"), "the prompt has a line of its own, and no word more"
    assert follower.returncode == 130
    assert call.result() is None
    call.cancel()


def test_a_pipe_that_nobody_reads_any_more_ends_it_in_silence(client: Client, deadlined: CommandLine) -> None:
    call = started(client, "while :; do echo line; sleep 0.05; done")
    follower = deadlined.start("output", call.call, "--follow")
    assert follower.stdout is not None
    assert follower.stderr is not None
    assert follower.stdout.readline() == "line\n"
    follower.stdout.close()
    assert follower.wait(30) == 1
    assert follower.stderr.read() == ""
    follower.stderr.close()
    assert call.result() is None
    call.cancel()


@pytest.mark.parametrize(
    ("options", "seen"),
    [([], b"red 1%\r\n2%\r\n"), (["--raw"], b"\x1b]0;title\x07\x1b[31mred\x1b[0m 1%\r2%\r\n")],
    ids=["for people", "raw"],
)
def test_a_terminal_gets_text_without_control_characters_unless_it_asks_for_raw_bytes(
    client: Client, deadlined: CommandLine, options: list[str], seen: bytes
) -> None:
    call = started(client, COLOURED)
    call.wait()
    ours, theirs = pty.openpty()
    with open(theirs, "wb", buffering=0) as terminal:
        follower = deadlined.start("output", call.call, "--follow", *options, stdout=terminal)
    try:
        assert read_all(ours) == seen
        assert follower.wait(30) == 0
    finally:
        os.close(ours)
        follower.communicate()


def read_all(terminal: int) -> bytes:
    """What is written to a terminal until the last of its writers is gone (read then fails: pty(7))."""
    seen = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            return seen
    raise AssertionError(f"nobody ended it; it had shown {seen!r}")


def test_a_flood_with_a_follower_that_reads_nothing_costs_the_daemon_nothing_and_others_are_served(
    client: Client, deadlined: CommandLine, standing_daemon: TestedDaemon
) -> None:
    """B030, B060: the follower's own pipe is full at once, and it asks for no more."""
    before = private_memory(standing_daemon.pid)
    call = started(client, "yes")
    follower = deadlined.start("output", call.call, "--follow")
    assert call.wait().reason == "output_limit"
    for _ in range(5):
        assert client.call("shell", {"argv": ["echo", "hi"]}, deadline_ms=30_000).output.view == "hi\n"
    assert private_memory(standing_daemon.pid) - before < 8 << 20
    follower.kill()
    follower.communicate()


def private_memory(pid: int) -> int:
    """Bytes that it allocated. (Of a daemon, which is not dumpable, `status` is all that everybody may read.)"""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def test_a_follower_of_a_flood_hears_every_byte(client: Client) -> None:
    call = started(client, "yes | head -c 20000000", max_output_bytes=30_000_000)
    received = sum(len(data) for data in call.output())
    assert received == 20_000_000 == call.wait().output.bytes
