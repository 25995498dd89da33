"""Captured output of ``deadlined exec``: bounds and order."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from deadlined.cli.exec_capture import Capture, drain, show


@pytest.fixture
def capture() -> Iterator[Capture]:
    made = Capture("both", (1, 2))
    yield made
    for descriptor in (made.raw, made.read_end, made.write_end):
        os.close(descriptor)


def test_what_is_left_in_the_pipe_after_the_end_is_kept(capture: Capture) -> None:
    os.write(capture.raw, b"first ")
    os.write(capture.write_end, b"last")
    assert not drain([capture], 1_000)
    assert os.pread(capture.raw, 100, 0) == b"first last"


def test_draining_stops_at_the_cap_and_says_so(capture: Capture) -> None:
    os.write(capture.raw, b"1234")
    os.write(capture.write_end, b"5678")
    assert drain([capture], 6)
    assert os.pread(capture.raw, 100, 0) == b"123456"


def test_draining_up_to_the_cap_is_no_excess(capture: Capture) -> None:
    os.write(capture.write_end, b"123456")
    assert not drain([capture], 6)
    assert capture.size() == 6


def test_the_raw_file_has_no_name(capture: Capture) -> None:
    link = os.readlink(f"/proc/self/fd/{capture.raw}")
    assert "(deleted)" in link


def test_captured_output_that_cannot_be_written_is_not_passed_over(capture: Capture) -> None:
    os.write(capture.raw, b"lost")
    full = os.open("/dev/full", os.O_WRONLY)
    capture.targets = (full,)
    lost = show([capture])
    os.close(full)
    assert lost is not None
    assert lost.errno == errno.ENOSPC
