import os
import signal
import subprocess
import sys
import uuid

import pytest

from deadlined import _outside


@pytest.fixture
def mark():
    return f"mark-{uuid.uuid4().hex}"


def _child(*argv, **environment):
    return subprocess.Popen(
        argv, env={"PATH": os.defpath, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _ended(child):
    child.stdin.close()
    child.wait(20)
    child.stdout.close()


def test_a_mark_is_found_in_the_environment_and_on_the_command_line(mark):
    by_environment, by_name = _child("cat", MARK=mark), _child("sh", "-c", "read line", mark)
    try:
        assert {process.pid for process in _outside.marked(mark)} == {by_environment.pid, by_name.pid}
    finally:
        _ended(by_environment)
        _ended(by_name)
    assert _outside.marked(mark) == set()


def test_a_tree_holds_the_descendants(mark):
    child = _child("sh", "-c", "sleep 30 & echo; read line", MARK=mark)
    try:
        child.stdout.readline()
        tree = _outside.tree(os.getpid())
        assert _outside.marked(mark) <= tree
        assert len(_outside.tree(child.pid)) == 2
    finally:
        for process in _outside.marked(mark):
            os.kill(process.pid, signal.SIGTERM)
        _ended(child)


def test_a_zombie_and_a_dead_process_are_not_alive():
    child = _child("true")
    processes = _outside.tree(child.pid)
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _outside.alive(processes) == set()
    _ended(child)
    assert _outside.alive(processes) == set()


def test_a_later_process_of_the_same_number_is_another_one():
    ours = next(iter(p for p in _outside.tree(os.getpid()) if p.pid == os.getpid()))
    assert _outside.alive({ours}) == {ours}
    assert _outside.alive({ours._replace(started=ours.started - 1)}) == set()


def test_a_name_with_parentheses_confuses_nobody(tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to(sys.executable)
    child = _child(str(program), "-c", "input()")
    try:
        assert {process.pid for process in _outside.tree(child.pid)} == {child.pid}
        assert child.pid in {process.pid for process in _outside.tree(os.getpid())}
    finally:
        child.terminate()
        _ended(child)
