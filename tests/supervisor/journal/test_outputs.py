"""Raw files and their pipes; real descriptors, no loop."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.journal.outputs import EDGE_BYTES, OutputStore, Stream, digest_of, drain, edges, line_ends, read_range


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(str(tmp_path))


@pytest.fixture
def streams(store: OutputStore) -> Iterator[list[Stream]]:
    """Of a dead call with two streams: nobody else holds an end of their pipes."""
    opened = store.open_streams("c_1", split=True)
    yield opened
    store.close_streams(opened)


def dead(streams: list[Stream], *written: bytes) -> None:
    """What the call had written to each pipe when it died."""
    for stream, data in zip(streams, written, strict=True):
        os.write(stream.write_end, data)
        stream.handed_over()


def kept(streams: list[Stream]) -> list[bytes]:
    return [Path(stream.path).read_bytes() for stream in streams]


def test_what_is_left_in_the_pipes_comes_behind_what_is_in_the_files(streams: list[Stream]) -> None:
    os.write(streams[0].raw, b"first ")
    dead(streams, b"last", b"error")
    drain(streams, 1_000)
    assert kept(streams) == [b"first last", b"error"]
    assert [stream.waiting() for stream in streams] == [0, 0]


@pytest.mark.parametrize(
    ("limit", "sizes"), [(100, [40, 50]), (90, [40, 50]), (60, [40, 20]), (30, [30, 0]), (0, [0, 0])]
)
def test_all_streams_together_keep_no_more_than_the_limit(streams: list[Stream], limit: int, sizes: list[int]) -> None:
    dead(streams, b"o" * 40, b"e" * 50)
    drain(streams, limit)
    assert [len(data) for data in kept(streams)] == sizes
    assert sum(stream.waiting() for stream in streams) == 90 - sum(sizes)


def test_raw_files_are_their_owners_alone(streams: list[Stream]) -> None:
    assert {os.stat(stream.path).st_mode & 0o777 for stream in streams} == {0o600}


def test_the_edges_of_a_small_file_are_all_of_it_and_of_a_large_one_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    for size in (0, 1, 2 * EDGE_BYTES, 2 * EDGE_BYTES + 1):
        data = os.urandom(size)
        path.write_bytes(data)
        head, tail, told = edges(str(path))
        assert told == size
        if size <= 2 * EDGE_BYTES:
            assert (head, tail) == (data, b"")
        else:
            assert (head, tail) == (data[:EDGE_BYTES], data[-EDGE_BYTES:])
        assert line_ends(str(path)) == data.count(b"\n")
        assert digest_of(str(path)) == hashlib.sha256(data).hexdigest()


def test_nothing_but_a_regular_file_is_read_and_nobody_waits(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to("/etc/hostname")
    for path in (str(fifo), str(link), str(tmp_path / "gone")):
        assert read_range(path, 0, 100) == b""
        assert digest_of(path) is None
        with pytest.raises(OSError, match=r"No such file|symbolic links|no regular file"):
            edges(path)


def test_what_an_earlier_life_has_left_is_found_with_its_age_and_weight(store: OutputStore, tmp_path: Path) -> None:
    (tmp_path / "c_1.both").write_bytes(bytes(5_000))
    work = tmp_path / "c_1.work" / "inner"
    work.mkdir(parents=True)
    (work / "file").write_bytes(bytes(70_000))
    (work / "loop").symlink_to(tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, (1_000, 1_000))
    found = {os.path.basename(kept.path): kept for kept in store.found(now_ns=10**12, wall_ms=1_500_000)}
    assert found.keys() == {"c_1.both", "c_1.work"}
    assert {kept.since_ns for kept in found.values()} == {10**12 - 500 * 10**9}
    assert found["c_1.both"].size == 5_000
    assert 70_000 <= found["c_1.work"].size < 71_000
