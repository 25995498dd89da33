"""The bench of peers without its processes: who is asked for what, and how a side is heard."""

from __future__ import annotations

import os
import select
from types import SimpleNamespace

import pytest

from bench._report import Section
from bench.peers import _adapters, _hang, _side
from bench.peers.__main__ import WORKLOADS, _lines, _next, _said, _TooLateError, _Tries, main
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


def test_what_breaks_is_counted_and_what_told_nothing_is_no_fault():
    tries = _Tries()
    for error in (None, _TooLateError("one of four"), TimeoutError("silent"), ValueError("no JSON")):
        with tries.one("pebble, sleep"):
            if error is not None:
                raise error
    assert (tries.broken().found, tries.late().found, tries.broken().of) == (2, 1, 4)
    assert tries.words[0] == "pebble, sleep: one of four"
    assert tries.words[1:] == ["BROKEN pebble, sleep: silent", "BROKEN pebble, sleep: no JSON"]


@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 1)])
def test_a_command_in_which_a_side_broke_says_so_by_its_exit_code(monkeypatch, capsys, broken, code):
    tries = _Tries()
    with tries.one("pebble, noop"):
        if broken:
            raise RuntimeError("ended")
    monkeypatch.setattr("bench._command.end_on_sigterm", lambda: None)
    monkeypatch.setitem(WORKLOADS, "noop", lambda _plan: Section("no-ops", [tries.broken()], tries.words))
    assert main(["--quick", "--only", "noop"]) == code
    assert ("BROKEN pebble, noop: ended" in capsys.readouterr().out) is broken
