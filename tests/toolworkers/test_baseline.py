"""Each thing that a call may leave, left on purpose in this process. (In a real worker: tests/contract.)"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolworkers._baseline import Baseline, Scratch


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """A baseline takes 0, 1, 2, the directory and the umask of its process for its own."""
    kept = [os.dup(number) for number in range(3)]
    directory = os.getcwd()
    yield
    for number, copy in enumerate(kept):
        os.dup2(copy, number)
        os.close(copy)
    os.chdir(directory)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def baseline(work: int) -> Iterator[Baseline]:
    _others_have_ended()
    baseline = Baseline(os.dup(work))
    yield baseline
    baseline.close()


def _others_have_ended() -> None:
    """Trio keeps a thread that has nothing to do for ten seconds. One of an earlier test would be missed at the end."""
    idle = [thread for thread in threading.enumerate() if thread.name.startswith("Trio")]
    for thread in idle:
        thread.join()
    for thread in idle:  # joined is a moment before gone
        while os.path.exists(f"/proc/self/task/{thread.native_id}"):
            time.sleep(0.001)


def test_nothing_left_is_the_same(baseline: Baseline, work: int) -> None:
    assert baseline.restore(work) == (0, True)


def test_directory_umask_environment_and_path_are_put_back(baseline: Baseline, work: int, tmp_path: Path) -> None:
    umask, path = os.umask(0o27), list(sys.path)
    os.umask(umask)
    had = dict(os.environ)
    os.chdir("/")
    os.umask(0o77)
    os.environ.pop("PATH")
    os.environ["LEFT"] = "x"
    sys.path.append("/left")
    assert baseline.restore(work) == (0, True)
    assert os.getcwd() == str(tmp_path)
    assert os.umask(umask) == umask
    had.pop("PYTEST_CURRENT_TEST"), os.environ.pop("PYTEST_CURRENT_TEST")  # it changes between setup and call
    assert dict(os.environ) == had
    assert sys.path == path


def test_standard_descriptors_are_put_back(baseline: Baseline, work: int) -> None:
    before = [os.fstat(number).st_ino for number in (0, 1)]
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)
    assert baseline.restore(work).same
    os.close(0)
    assert not baseline.restore(work).same
    assert [os.fstat(number).st_ino for number in (0, 1)] == before


def test_another_output_file_stays(baseline: Baseline, work: int, tmp_path: Path) -> None:
    new = os.open(tmp_path / "new", os.O_RDWR | os.O_CREAT)
    inode = os.fstat(new).st_ino
    baseline.take_output(new)
    assert baseline.restore(work).same
    assert [os.fstat(number).st_ino for number in (1, 2)] == [inode, inode]


def test_a_descriptor_left_open_is_found(baseline: Baseline, work: int) -> None:
    left = os.dup(work)
    assert not baseline.restore(work).same
    os.close(left)
    assert baseline.restore(work).same


def test_threads_left_are_counted(baseline: Baseline, work: int) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert baseline.restore(work) == (2, False)
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("leave", "take_back"),
    [
        (lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN), lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL)),
        (
            lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]),
            lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2]),
        ),
        (lambda: signal.setitimer(signal.ITIMER_REAL, 600), lambda: signal.setitimer(signal.ITIMER_REAL, 0)),
    ],
    ids=["handler", "mask", "alarm"],
)
def test_signal_state_left_is_found(
    baseline: Baseline, work: int, leave: Callable[[], None], take_back: Callable[[], None]
) -> None:
    leave()
    try:
        assert not baseline.restore(work).same
    finally:
        take_back()
    assert baseline.restore(work).same


def test_files_left_in_the_scratch_are_found(tmp_path: Path) -> None:
    tmp, work = tmp_path / "tmp", tmp_path / "work"
    tmp.mkdir()
    work.mkdir()
    scratch = Scratch(str(tmp), str(work), tmp_is_private=False)
    assert scratch.untouched(system_v=True)
    for directory in (tmp, work, tmp / "home"):
        (directory / "left").touch()
        assert not scratch.untouched(system_v=False)
        scratch._clean = scratch._look()
    (tmp / "home" / "left").unlink()
    assert not scratch.untouched(system_v=False), "made and removed again is a touch where there is no file system"
    for descriptor in scratch._plain:
        os.close(descriptor)
