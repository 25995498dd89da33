from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from protocol._outcomes import Survivor
from supervisor.containment.survivors import MOST, list_survivors, printable


def survivors(pid: int) -> list[Survivor]:
    found: list[Survivor] = []
    list_survivors(pid, found)
    return found


@pytest.fixture
def started():
    """Starts programs in sessions of their own, and ends those."""
    children: list[subprocess.Popen[bytes]] = []

    def start(*words: str | bytes) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        children.append(subprocess.Popen(list(words), start_new_session=True, **pipes))
        return children[-1]

    yield start
    for child in children:
        if child.returncode is None:  # not reaped: its number, and its group's, are still its own
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def test_a_process_and_those_below_it_are_named_with_their_user_state_and_command(started):
    child = started("sh", "-c", "sleep 60 & echo ready; wait")
    child.stdout.readline()
    rows, until = survivors(child.pid), time.monotonic() + 20
    while "sleep 60" not in [row.command for row in rows]:  # forked, and no other program yet
        assert time.monotonic() < until
        rows = survivors(child.pid)
    assert rows[0].pid == child.pid
    assert {row.uid for row in rows} == {os.getuid()}
    assert all(row.state in "SRD" for row in rows)


def test_one_that_has_ended_is_no_survivor(started):
    child = started("true")
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert survivors(child.pid) == []
    child.wait()
    assert survivors(child.pid) == []


def test_nor_is_a_zombie_below_one_that_lives(started):
    child = started("sh", "-c", "true & exec sleep 60")  # sleep reaps nobody
    until = time.monotonic() + 20
    while [row.command for row in survivors(child.pid)] != ["sleep 60"]:
        assert time.monotonic() < until
    assert len(os.listdir(f"/proc/{child.pid}/task")) == 1
    with open(f"/proc/{child.pid}/task/{child.pid}/children") as children:
        assert len(children.read().split()) == 1, "there is no zombie: nothing is shown"


def test_a_name_and_words_of_any_bytes_are_text_that_both_codecs_carry(started):
    rename = b"import ctypes; ctypes.CDLL(None).prctl(15, b'\\xc3\\x1b)('); print(1, flush=True); input()"
    child = started(os.fsencode(sys.executable), b"-c", rename, b"\xc3", b"\xed\xa0\x80")
    child.stdout.readline()
    found = survivors(child.pid)
    assert len(found) == 1
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(found), type=list[Survivor]) == found
    assert printable(b"\xc3\x1b[0m") == "\\xc3\\x1b[0m"
    assert len(printable(b"x" * 10_000)) < 200


def test_only_the_first_few_are_named(started):
    child = started("sh", "-c", "for i in $(seq 30); do sleep 60 & done; echo ready; wait")
    child.stdout.readline()
    assert len(survivors(child.pid)) == MOST


def test_nothing_is_known_of_one_that_never_was():
    assert survivors(2**22 + 7) == []
