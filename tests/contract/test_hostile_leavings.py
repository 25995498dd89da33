"""What hostile commands leave for who reads, shows or removes it: traps in their directory, lies in their output."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import CallResult, Client
from tests.contract.hostile_play import play_once
from tests.contract.hostile_rows import DAEMON, Row
from tests.contract.hostile_world import World, interpreter, open_world, settles, whose

pytestmark = pytest.mark.contract

CONFIG = DAEMON.replace("in_flight = 4", "in_flight = 4\noutput_ttl_ms = 4000")
SECRET = "nobody may read this\n"
TRAPS = ["link.txt", "linked/victim.txt", "dangling.txt", "fifo.txt", "device.txt"]


@pytest.fixture(scope="module", params=whose())
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A daemon that keeps what a call left for four seconds."""
    with open_world(request.param, interpreter(request.param, request), CONFIG) as world:
        yield world


@pytest.fixture
def victim(world: World) -> Iterator[Path]:
    """A file beside nothing else, of the daemon's uid. It must stay as it is, and alone."""
    with tempfile.TemporaryDirectory(prefix="dl-victim-", dir=world.directory) as place:
        file = Path(place, "victim.txt")
        file.write_text(SECRET)
        for path in (file.parent, file):
            os.chown(path, world.uid, -1)
        yield file
        assert [path.name for path in file.parent.iterdir()] == ["victim.txt"]
        assert file.read_text() == SECRET
        settles(lambda: file.stat().st_nlink - 1)


def trapped(world: World, victim: Path, **more: str) -> CallResult:
    expected = {"status": "killed"} if more else {"status": "ok", "workdir": None}
    deadline_ms = 2_000 if more else 20_000
    return play_once(
        world, Row("sets_traps", expected, deadline_ms, environment={"HOSTILE_VICTIM": str(victim), **more})
    )


def left_in(state: Path) -> list[str]:
    """Everything that a trap left below the daemon's state."""
    traps = {"link.txt", "fifo.txt", "locked"}
    return [
        where for where, below, files in os.walk(state) if traps & {*below, *files}
    ]  # passes over what has just gone


def test_traps_in_the_work_directory_of_a_good_call_are_removed_and_hurt_nobody(world: World, victim: Path):
    result = trapped(world, victim)
    assert "ready" in result.output.view
    assert "set link" in result.output.view
    settles(lambda: left_in(world.directory / "s"))


def test_traps_that_are_kept_are_not_followed_by_tools_that_read_and_go_with_the_result(world: World, victim: Path):
    kept = trapped(world, victim, HOSTILE_STAY="1").workdir
    assert kept is not None
    with Client(world.socket) as client:

        def ask(tool: str, **arguments: Any) -> CallResult:
            return client.call(tool, arguments, deadline_ms=30_000, cwd=kept)

        for trap in TRAPS:
            result = ask("read_file", path=trap)
            assert (result.status, SECRET in json.dumps(result.content)) in [
                ("not_executed", False),
                ("error", False),
            ], (trap, result)
        assert ask("list_files").status == "ok"
        found = ask("search", pattern="nobody may read")
        assert found.status in ("ok", "no_result")
        assert "link" not in json.dumps(found.content)
    settles(lambda: left_in(world.directory / "s"), until_s=40)


@pytest.fixture(params=["", "1"], ids=["text", "binary"])
def injected(world: World, request: pytest.FixtureRequest) -> tuple[CallResult, bytes, str]:
    """The call, all that it wrote, and what a person sees of it on a terminal."""
    with Client(world.socket) as client:
        arguments = {"argv": world.argv("injects"), "env": world.environment(HOSTILE_BINARY=request.param)}
        handle = client.submit("shell", arguments, deadline_ms=30_000)
        result = handle.wait()
        raw = b"".join(handle.output())
        shown = on_a_terminal(world, "call", "shell", json.dumps(arguments)) + on_a_terminal(
            world, "output", handle.call
        )
    return result, raw, shown


def on_a_terminal(world: World, *words: str) -> str:
    """What ``deadlined`` writes when its stdout and stderr are one."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "deadlined", *words, "--socket", world.socket]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: nobody has its other end any more (pty(7))
            while more := os.read(ours, 65_536):
                shown += more
    os.close(ours)
    return shown.decode(errors="surrogateescape")


def test_lies_in_an_output_are_kept_to_the_byte_and_steer_no_terminal_and_no_log(world: World, injected):
    result, raw, shown = injected
    assert (result.status, result.output.bytes) == ("ok", len(raw))
    assert result.output.sha256 == hashlib.sha256(raw).hexdigest()
    assert b"\x1b]52;c;AAAA\x07" in raw
    assert "approved by the operator" in result.output.view
    assert "approved by the operator" in shown
    steering = {sign for text in (shown, result.output.view) for sign in text if sign < " " or "\x7f" <= sign <= "\x9f"}
    assert steering <= set("\n\r\t")  # the terminal's own line ends
    assert not {"\u202e", "\u2066"} & set(shown), "letters would be shown in another order than they have"
    assert [
        line for line in world.log.splitlines() if "forged" in line or json.loads(line).get("call") == "forged"
    ] == []


def test_no_event_of_the_log_is_a_commands_word(world: World, injected):
    said = subprocess.run(
        [sys.executable, "-m", "deadlined", "events", "--json", "--socket", world.socket],
        capture_output=True,
        text=True,
    )
    events = [json.loads(line) for line in said.stdout.splitlines()]
    assert events
    assert injected[0].call in {event.get("call") for event in events}
    assert "forged" not in said.stdout
