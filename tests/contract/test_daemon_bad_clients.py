"""Clients that are slow on purpose, ask for more than they take, or want to fill the daemon: others do not notice."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from deadlined import Client
from tests.contract.conftest import TestedDaemon

pytestmark = pytest.mark.contract


@contextlib.contextmanager
def hand_made(daemon: TestedDaemon, greet: bool = True) -> Iterator[socket.socket]:
    """A connection that speaks JSON lines."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(daemon.socket)
        if greet:
            client.sendall(line(op="hello", version=1))
            assert b"welcome" in client.recv(4096)
        yield client


def line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def dribble(client: socket.socket, text: bytes, pause_s: float) -> bytes:
    """Send byte after byte until there is an answer or an end; what was heard."""
    client.settimeout(pause_s)
    for number in range(len(text)):
        with contextlib.suppress(TimeoutError):
            client.sendall(text[number : number + 1])
            return client.recv(4096)
    return b"nothing"


def test_a_hello_in_drops_is_no_hello(start_daemon: Callable[..., TestedDaemon]):
    daemon = start_daemon("[daemon]\nhello_timeout_ms = 500\n")
    with hand_made(daemon, greet=False) as client:
        assert b"no hello within" in dribble(client, line(op="hello", version=1), 0.1)


def test_a_frame_in_drops_is_cut_and_whole_ones_are_not(start_daemon: Callable[..., TestedDaemon]):
    daemon = start_daemon("[daemon]\nframe_timeout_ms = 500\n")
    with hand_made(daemon) as client:
        ask = line(op="ask_status", id=1)
        client.sendall(ask[:5])
        for number in range(2, 12):  # a frame is always begun, and each ends in time
            client.sendall(ask[5:] + (ask := line(op="ask_status", id=number))[:5])
            assert b"daemon_status" in client.recv(4096)
            time.sleep(0.1)
        assert b"begun and not ended" in dribble(client, ask[5:], 0.1)


def test_answers_that_nobody_takes_are_bounded_within_one_read(standing_daemon: TestedDaemon):
    """1 MiB may wait for a client; 60 KiB of requests ask for 150 MiB."""
    process = psutil.Process(standing_daemon.pid)
    with Client(standing_daemon.socket) as client:
        large = client.call("shell", {"argv": ["head", "-c", "300000", "/dev/zero"]}, deadline_ms=20_000)
        before = process.memory_info().rss
        with hand_made(standing_daemon) as greedy:
            asks = b"".join(line(op="read_output", id=n, call=large.call, limit=262_144) for n in range(600))
            with contextlib.suppress(OSError):
                greedy.sendall(asks)
                time.sleep(0.5)
            assert client.status().degraded == []
            assert process.memory_info().rss - before < 32 << 20


def test_waits_of_clients_that_left_are_forgotten(standing_daemon: TestedDaemon):
    process = psutil.Process(standing_daemon.pid)
    with Client(standing_daemon.socket) as client:
        handle = client.submit("shell", {"argv": ["sleep", "600"]}, deadline_ms=3_600_000)
        asks = b"".join(line(op="wait", id=n, call=handle.call) for n in range(20_000))
        before = 0
        for number in range(24):
            with hand_made(standing_daemon) as waiting, contextlib.suppress(OSError):
                waiting.sendall(asks)
                waiting.sendall(line(op="ask_status", id=1_000_000))
                waiting.recv(4096)
            if number == 3:
                before = process.memory_info().rss
        assert process.memory_info().rss - before < 32 << 20
        handle.cancel()
        assert handle.wait().status == "cancelled"


def test_a_key_whose_call_was_refused_for_overload_may_be_sent_again(start_daemon: Callable[..., TestedDaemon]):
    with Client(start_daemon("[daemon]\nin_flight = 1\nqueue = 0\n").socket) as client:
        busy = client.submit("shell", {"argv": ["sleep", "600"]}, deadline_ms=60_000)
        refused = client.call("shell", {"argv": ["echo", "x"]}, key="k", deadline_ms=20_000)
        assert (refused.reason, refused.retryable, refused.delivery) == ("overloaded", True, "not_delivered")
        busy.cancel()
        busy.wait()
        served = client.call("shell", {"argv": ["echo", "x"]}, key="k", deadline_ms=20_000)
        assert (served.status, served.output.view) == ("ok", "x\n")
        assert client.call("shell", {"argv": ["echo", "x"]}, key="k", deadline_ms=20_000).call == served.call
