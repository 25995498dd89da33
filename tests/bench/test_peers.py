"""The bench of peers without its processes: who is asked for what, and how a side is heard."""

from __future__ import annotations

import os
import select
from types import SimpleNamespace

import pytest

from bench.peers import _adapters, _hang, _side
from bench.peers.__main__ import _lines, _next, _said
from bench.peers._adapters import PEERS, Futures, Peer, can


@pytest.fixture
def side():
    """What `_said` reads of a process: its stdout, here a pipe; and the end that writes it."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stdout, os.fdopen(writing, "wb", buffering=0) as said:
        yield SimpleNamespace(stdout=stdout, args="side", pid=0), said


def test_a_peer_is_asked_only_for_what_it_can_do():
    assert [name for name in PEERS if can(name, "noop") and can(name, "command")] == ["deadlined", "anyio"]
    assert all(hasattr(peer, "hang") and peer.bound for peer in PEERS.values())


def test_a_peer_that_is_not_installed_is_asked_for_nothing(monkeypatch):
    class Nobody(Futures):
        package = "no-such-package"

    monkeypatch.setitem(_adapters.PEERS, "nobody", Nobody)
    assert Nobody.version() is None
    assert not can("nobody", "noop")


def test_a_peer_of_the_standard_library_is_always_there():
    assert Futures.version() == Peer.version() is not None


def test_every_kind_of_hang_is_a_tool_of_the_bench_too():
    from bench import tools

    assert all(getattr(tools, kind).__name__ == kind for kind in _hang.KINDS)


def test_warming_up_is_not_measured():
    calls = []
    assert len(_side._samples(lambda: calls.append(1), 12)) == 12
    assert len(calls) == 12 + _side._WARM_UP


def test_two_lines_that_come_at_once_are_two_answers(side):
    heard, said = side
    said.write(b"1.5\ntrue\n")
    assert (_said(heard), _next(heard)) == (1.5, True)


def test_a_side_that_says_nothing_is_not_waited_for_without_end(side):
    heard, _ = side
    assert select.select([heard.stdout], [], [], 0)[0] == []
    with pytest.raises(TimeoutError):
        _said(heard, 0.0)


def test_a_side_that_has_ended_is_no_silent_one(side):
    heard, said = side
    said.close()
    with pytest.raises(RuntimeError, match="ended"):
        _said(heard)


@pytest.mark.parametrize(("answers", "lines"), [([True, False], 4), ([None, None], 3)])
def test_whether_the_next_call_is_answered_is_said_of_pools_alone(answers, lines):
    found = list(_lines("x", 2, [(1.0, 2, 1, answer) for answer in answers]))
    assert len(found) == lines
    assert [line.found for line in found[1:]] == [4, 2, 1][: lines - 1]
