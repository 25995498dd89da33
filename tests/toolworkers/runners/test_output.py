"""Pipe to file, with writers in this process."""

from __future__ import annotations

import os
import resource
import select
from collections.abc import Iterator

import pytest

from toolworkers.runners._output import Output


class Piped:
    """An output over ``streams`` pipes, and the writers' ends."""

    def __init__(self, limit: int, streams: int = 1) -> None:
        self.raws = [os.memfd_create("raw") for _ in range(streams)]
        descriptors: list[int] = []
        self.writers: list[int] = []
        for raw in self.raws:
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)
            self.writers.append(os.dup(write_end))
            descriptors += [os.dup(raw), read_end, write_end]
        self.output = Output(descriptors, limit)
        self.output.close_write_ends()

    def end(self) -> None:
        for writer in self.writers:
            os.close(writer)
        self.writers = []

    def text(self, stream: int = 0) -> bytes:
        return os.pread(self.raws[stream], 1 << 20, 0)


@pytest.fixture
def piped() -> Iterator[object]:
    made: list[Piped] = []

    def make(limit: int = 1 << 20, streams: int = 1) -> Piped:
        made.append(Piped(limit, streams))
        return made[-1]

    yield make
    for one in made:
        one.end()
        one.output.close()
        for raw in one.raws:
            os.close(raw)


def test_bytes_arrive_in_order_and_are_counted(piped) -> None:
    one = piped()
    poll = select.poll()
    one.output.watch(poll)
    for part in (b"ab", b"cd", b"ef"):
        os.write(one.writers[0], part)
        for descriptor, _ in poll.poll(0):
            one.output.take(descriptor, poll)
    assert (one.text(), one.output.size, one.output.over) == (b"abcdef", 6, False)
    one.end()
    for descriptor, _ in poll.poll(0):
        one.output.take(descriptor, poll)
    assert poll.poll(0) == []


def test_the_rest_is_taken_without_waiting_for_an_end_of_file(piped) -> None:
    one = piped()
    os.write(one.writers[0], b"x" * 50_000)
    one.output.take_rest()
    assert len(one.text()) == 50_000
    assert not one.output.streams[0].ended


def test_the_limit_counts_all_streams_together(piped) -> None:
    two = piped(limit=10, streams=2)
    os.write(two.writers[0], b"a" * 8)
    os.write(two.writers[1], b"b" * 8)
    two.output.take_rest()
    assert (two.text(0), two.text(1), two.output.over) == (b"a" * 8, b"b" * 2, True)


def test_exactly_the_limit_is_not_over(piped) -> None:
    one = piped(limit=8)
    os.write(one.writers[0], b"a" * 8)
    one.output.take_rest()
    one.end()
    one.output.take_rest()
    assert (one.text(), one.output.over) == (b"a" * 8, False)


def test_a_file_that_takes_no_more_loses_bytes_and_no_count(piped) -> None:
    one = piped()
    os.write(one.writers[0], b"a" * 10)
    one.output.take_rest()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    os.write(one.writers[0], b"b" * 10)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15, hard))  # stands for a full disk: EFBIG for ENOSPC
    try:
        one.output.take_rest()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert one.output.size == 20
    assert one.text() == b"a" * 10 + b"b" * 5


def test_closing_gives_every_descriptor_back(piped) -> None:
    before = len(os.listdir("/proc/self/fd"))
    one = piped(streams=2)
    one.end()
    one.output.close()
    for raw in one.raws:
        os.close(raw)
    one.raws = []
    assert len(os.listdir("/proc/self/fd")) == before
    one.output.streams = []


def test_what_the_tools_own_code_printed_stands_in_front_and_counts(piped) -> None:
    run = piped(limit=8)
    os.write(run.output.lent[0], b"plan ")
    os.write(run.output.lent[1], b"a ")
    run.output.take_printed()
    os.write(run.writers[0], b"run")
    run.end()
    run.output.take_rest()
    assert (run.text(), run.output.size, run.output.over) == (b"plan a r", 8, True)


def test_of_two_streams_each_keeps_what_was_printed_into_it(piped) -> None:
    run = piped(streams=2)
    os.write(run.output.lent[0], b"plan ")
    os.write(run.output.lent[1], b"warning ")
    run.output.take_printed()
    for writer in run.writers:
        os.write(writer, b"run")
    run.end()
    run.output.take_rest()
    assert [run.text(0), run.text(1)] == [b"plan run", b"warning run"]
