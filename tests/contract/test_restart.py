"""What a daemon's end leaves to its next life: results, keys, events, outputs, and the truth about what was cut off."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deadlined import CallResult, Client, DeadlinedError
from tests.contract.conftest import CommandLine, TestedDaemon
from tests.supervisor.journal.conftest import tampered

pytestmark = pytest.mark.contract
QUIET = "[daemon]\nspares = 1\n"
Start = Callable[..., TestedDaemon]


def wait_for(path: Path) -> None:
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until, f"{path} was not made"
        time.sleep(0.005)


def replayed(result: CallResult) -> CallResult:
    """The same, told to a delivery that ran nothing."""
    assert not result.replayed
    return msgspec.structs.replace(result, replayed=True)


def writes_and_sleeps(path: Path) -> dict[str, list[str]]:
    return {"argv": ["sh", "-c", 'echo x >> "$0"; echo begun; sleep 60', str(path)]}


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_every_result_comes_back_byte_for_byte(start_daemon: Start, end: str):
    daemon = start_daemon(QUIET)
    with Client(daemon.socket) as client:
        told = [
            client.call("shell", {"argv": ["echo", "attached"]}, deadline_ms=30_000),
            client.submit("shell", {"argv": ["sh", "-c", "echo detached; exit 3"]}, detach=True).wait(),
            client.submit("python", {"code": "print('p'); 6*7"}, detach=True).wait(),
        ]
    if end == "killed":
        daemon.kill()
    else:
        assert daemon.private.stop() == 0
    again = start_daemon(QUIET, after=daemon)
    with Client(again.socket) as client:
        assert [client.handle(one.call).wait() for one in told] == told
        assert [one.durable for one in told] == [True] * 3
        assert b"".join(client.handle(told[1].call).output()) == b"detached\n"


def test_a_call_that_was_cut_off_is_unknown_and_never_run_again(start_daemon: Start):
    daemon = start_daemon(QUIET)
    marker = daemon.directory / "marker"
    with Client(daemon.socket) as client:
        handle = client.submit("shell", writes_and_sleeps(marker), deadline_ms=60_000, key="k", detach=True)
        wait_for(marker)
        daemon.kill()
    again = start_daemon(QUIET, after=daemon)
    with Client(again.socket) as client:
        result = client.handle(handle.call).wait()
        assert (result.status, result.reason, result.delivery) == ("unknown", "daemon_restarted", "unknown")
        assert (result.retryable, result.durable) == (False, True)
        assert result.output.view == "begun\n"
        assert client.call("shell", writes_and_sleeps(marker), deadline_ms=60_000, key="k") == replayed(result)
        other = client.call("shell", {"argv": ["true"]}, deadline_ms=60_000, key="k")
        assert other.reason == "key_conflict"
    assert marker.read_text() == "x\n"


def test_what_waited_in_the_queue_did_not_run_and_may_be_sent_again(start_daemon: Start):
    config = "[daemon]\nspares = 0\nin_flight = 1\n"
    daemon = start_daemon(config)
    first, second = daemon.directory / "first", daemon.directory / "second"
    with Client(daemon.socket) as client:
        client.submit("shell", writes_and_sleeps(first), deadline_ms=60_000, detach=True)
        wait_for(first)
        waiting = client.submit("shell", {"argv": ["touch", str(second)]}, deadline_ms=60_000, key="q", detach=True)
        daemon.kill()
    again = start_daemon(config, after=daemon)
    with Client(again.socket) as client:
        result = client.handle(waiting.call).wait()
        assert (result.status, result.delivery, result.retryable) == ("unknown", "not_delivered", True)
        assert not second.exists()
        resent = client.call("shell", {"argv": ["touch", str(second)]}, deadline_ms=60_000, key="q")
        assert (resent.status, second.exists()) == ("ok", True)


def test_a_key_answers_across_lives_without_running_twice(start_daemon: Start):
    daemon = start_daemon(QUIET)
    marker = daemon.directory / "marker"
    argv = {"argv": ["sh", "-c", 'echo x >> "$0"', str(marker)]}
    told: list[CallResult] = []
    for _ in range(3):
        with Client(daemon.socket) as client:
            told.append(client.call("shell", argv, deadline_ms=60_000, key="once"))
        daemon.kill()
        daemon = start_daemon(QUIET, after=daemon)
    assert told == [told[0], replayed(told[0]), replayed(told[0])]
    assert marker.read_text() == "x\n"


def test_the_events_of_all_lives_are_one_log_without_a_gap(start_daemon: Start):
    daemon = start_daemon(QUIET)
    with Client(daemon.socket) as client:
        call = client.call("shell", {"argv": ["true"]}, deadline_ms=30_000).call
        seen = list(client.events())
    daemon.kill()
    again = start_daemon(QUIET, after=daemon)
    with Client(again.socket) as client:
        until = time.monotonic() + 20
        events = list(client.events())
        while sum(event.kind == "daemon_started" for event in events) < 2:
            assert time.monotonic() < until
            events = list(client.events())
        of_call = [event.kind for event in client.events(call=call)]
        assert client.status().degraded == []
    assert events[: len(seen)] == seen
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert of_call == ["call_claimed", "call_sent", "call_accepted", "call_ended"]


def test_a_follower_hears_of_a_call_as_it_happens(deadlined: CommandLine, standing_daemon: TestedDaemon):
    with Client(standing_daemon.socket) as client:
        last = max((event.seq for event in client.events()), default=0)
        follower = deadlined.start("events", "--follow", "--json", "--after", str(last))
        try:
            call = client.call("shell", {"argv": ["echo", "\x1b[31m"]}, deadline_ms=30_000).call
            heard = []
            while not heard or heard[-1]["kind"] != "call_ended":
                assert follower.stdout is not None
                heard.append(json.loads(follower.stdout.readline()))
        finally:
            follower.kill()
            follower.communicate()
    assert next(event["kind"] for event in heard if event["call"] == call) == "call_claimed"
    assert [event["seq"] for event in heard] == list(range(last + 1, last + 1 + len(heard)))


def test_a_journal_that_was_changed_is_an_alarm_and_the_daemon_serves(start_daemon: Start):
    daemon = start_daemon(QUIET)
    with Client(daemon.socket) as client:
        client.call("shell", {"argv": ["true"]}, deadline_ms=30_000)
    daemon.kill()
    (journal,) = daemon.directory.glob("state/*/journal.db")
    tampered(str(journal), "UPDATE events SET data = '{}' WHERE kind = 'call_claimed'")
    again = start_daemon(QUIET, after=daemon)
    with Client(again.socket) as client:
        assert any("journal" in why for why in client.status().degraded)
        assert client.call("shell", {"argv": ["true"]}, deadline_ms=30_000).status == "ok"


def test_a_journal_that_is_damaged_is_left_alone_and_named(start_daemon: Start):
    daemon = start_daemon(QUIET)
    daemon.kill()
    (journal,) = daemon.directory.glob("state/*/journal.db")
    for side in ("", "-wal"):
        if os.path.exists(f"{journal}{side}"):
            Path(f"{journal}{side}").write_bytes(b"\xff" * 9_000)
    with pytest.raises(DeadlinedError, match="journal"):
        start_daemon(QUIET, after=daemon)
    assert journal.read_bytes() == b"\xff" * 9_000
