"""The bench's witness: it sees who lives, takes pidfds by the kernel's word, and leaves nobody behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench._oracle import Witness, alive, deaths, open_oracle, tree, watched

pytestmark = pytest.mark.contract

_REPORTS = """
import socket, sys, time
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
    line.connect(sys.argv[1])
    line.sendall(b"worker 1234")
time.sleep(60)
"""


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_that_lives_is_alive_and_one_that_was_killed_is_not(sleeper):
    witness = Witness(sleeper.pid)
    assert alive([witness]) == [witness]
    sleeper.kill()
    assert list(deaths([witness], 10.0)) == [sleeper.pid]
    assert alive([witness]) == []
    witness.end()


def test_a_process_that_does_not_die_is_not_among_the_deaths(sleeper):
    with watched([Witness(sleeper.pid)]) as witnesses:
        assert deaths(witnesses, 0.05) == {}
        assert alive(witnesses) == witnesses


def test_a_survivor_is_ended_when_its_witness_is_let_go(sleeper):
    with watched([Witness(sleeper.pid)]):
        pass
    assert sleeper.wait(10) == -9


def test_who_reports_is_known_by_the_kernel_and_not_by_its_word(tmp_path: Path):
    with open_oracle(tmp_path) as oracle:
        process = subprocess.Popen([sys.executable, "-c", _REPORTS, oracle.path])
        with watched(oracle.collect(1, 30.0)) as witnesses:
            assert [(w.pid, w.name, w.deadline_ns) for w in witnesses] == [(process.pid, "worker", 1234)]
        assert process.wait(10) == -9


def test_a_report_that_does_not_come_is_not_waited_for_longer_than_asked(tmp_path: Path):
    with open_oracle(tmp_path) as oracle:
        assert oracle.collect(1, 0.01) == []


def test_the_tree_has_children_of_children():
    process = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & echo ready; wait"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with watched(tree(process.pid)) as witnesses:
        assert len(witnesses) == 3
        assert witnesses[0].pid == process.pid
    process.wait()
    process.stdout.close()


def test_an_oracle_leaves_no_descriptor_behind(tmp_path: Path):
    before = os.listdir("/proc/self/fd")
    with open_oracle(tmp_path) as oracle, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(oracle.path)
        line.sendall(b"me 0")
        (witness,) = oracle.collect(1, 10.0)
        assert witness.pid == os.getpid()
        os.close(witness.pidfd)
    assert os.listdir("/proc/self/fd") == before
