"""Frames and lines: what comes out does not depend on how the bytes came in, and nobody can make a buffer grow."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._errors import LocalProtocolError, RemoteProtocolError
from protocol._framing import (
    FRAME_HARD_LIMIT,
    FRAME_LIMIT,
    FRAME_OVERHEAD,
    FrameBuffer,
    LineBuffer,
    frame,
    line,
    speaks_json,
)

BUFFERS = (FrameBuffer, LineBuffer)
KIB = 1 << 10
MIB = 1 << 20


def read(buffer: FrameBuffer | LineBuffer, pieces: Iterable[bytes]) -> tuple[list[bytes], str | None]:
    """Feed piece by piece; what came out, and the fault that ended it."""
    out: list[bytes] = []
    try:
        for piece in pieces:
            out.extend(buffer.feed(piece))
        buffer.eof()
    except RemoteProtocolError as error:
        return out, str(error)
    return out, None


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """``data`` cut at ``places`` (any order, out of range allowed)."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@given(st.lists(st.binary(max_size=80)), st.lists(st.integers(0, 5_000)))
def test_frames_cut_anywhere_are_the_frames_that_were_sent(bodies: list[bytes], places: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    assert read(FrameBuffer(), cut(stream, places)) == (bodies, None)


@given(st.lists(st.binary(max_size=60).filter(lambda body: b"\n" not in body)), st.lists(st.integers(0, 5_000)))
def test_lines_cut_anywhere_are_the_lines_that_were_sent(bodies: list[bytes], places: list[int]) -> None:
    stream = b"".join(map(line, bodies))
    wanted = [text for body in bodies if (text := body.strip(b" \t\r"))]
    assert read(LineBuffer(), cut(stream, places)) == (wanted, None)


@pytest.mark.parametrize("kind", BUFFERS)
@given(st.binary(max_size=400), st.lists(st.integers(0, 400)))
def test_any_bytes_cut_anywhere_end_as_they_do_whole(
    kind: type[FrameBuffer | LineBuffer], data: bytes, places: list[int]
) -> None:
    whole = read(kind(limit=40), [data])
    assert read(kind(limit=40), cut(data, places)) == whole
    assert read(kind(limit=40), [data[i : i + 1] for i in range(len(data))]) == whole


@pytest.mark.parametrize("kind", BUFFERS)
def test_nothing_read_is_nothing_said(kind: type[FrameBuffer | LineBuffer]) -> None:
    assert read(kind(), [b"", b""]) == ([], None)


def test_an_empty_frame_is_a_frame() -> None:
    assert read(FrameBuffer(), [frame(b"") * 3]) == ([b"", b"", b""], None)


def test_a_frame_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert read(FrameBuffer(limit=10), [frame(b"0123456789")]) == ([b"0123456789"], None)
    frames, fault = read(FrameBuffer(limit=10), [frame(b"0123456789x")])
    assert frames == []
    assert fault == "a frame of 11 bytes was announced; at most 10 are allowed"


def test_a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert read(LineBuffer(limit=10), [b"0123456789\n"]) == ([b"0123456789"], None)
    for pieces in ([b"0123456789x\n"], [b"0123456789", b"x"], [b"0123456789x"]):
        frames, fault = read(LineBuffer(limit=10), pieces)
        assert frames == []
        assert fault == "a line is longer than the 10 bytes that are allowed"


def test_a_header_is_judged_before_its_body_comes() -> None:
    buffer = FrameBuffer()
    with pytest.raises(RemoteProtocolError, match="4294967295 bytes was announced"):
        list(buffer.feed(b"\xff\xff\xff\xff"))


def test_a_line_is_judged_before_its_end_comes() -> None:
    buffer = LineBuffer(limit=100)
    assert list(buffer.feed(b"x" * 100)) == []
    with pytest.raises(RemoteProtocolError):
        list(buffer.feed(b"x"))


def test_good_frames_before_a_bad_header_are_delivered() -> None:
    stream = frame(b"one") + frame(b"two") + b"\xff\xff\xff\xff"
    for pieces in ([stream], cut(stream, range(len(stream)))):
        frames, fault = read(FrameBuffer(), pieces)
        assert frames == [b"one", b"two"]
        assert fault is not None


def test_good_lines_before_one_too_long_are_delivered() -> None:
    stream = b"one\ntwo\n" + b"x" * 20 + b"\nthree\n"
    for pieces in ([stream], cut(stream, range(len(stream)))):
        frames, fault = read(LineBuffer(limit=10), pieces)
        assert frames == [b"one", b"two"]
        assert fault is not None


def feed_all(buffer: FrameBuffer | LineBuffer, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        list(buffer.feed(piece))


def grown_by(buffer: FrameBuffer | LineBuffer, pieces: Iterable[bytes]) -> tuple[int, str]:
    """The peak of new memory while a buffer is fed something it must refuse, and the fault."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        with pytest.raises(RemoteProtocolError) as refused:
            feed_all(buffer, pieces)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before, str(refused.value)


@pytest.mark.parametrize("size", [FRAME_LIMIT + 1, 0x7B << 24, 0xFFFFFFFF])
def test_an_announcement_of_gigabytes_costs_less_than_one_mebibyte(size: int) -> None:
    piece = b"x" * (64 * KIB)
    pieces = itertools.chain([struct.pack(">I", size)], itertools.repeat(piece, 100))
    grown, fault = grown_by(FrameBuffer(), pieces)
    assert str(size) in fault
    assert grown < MIB


def test_an_endless_line_costs_little_more_than_the_limit() -> None:
    piece = b"x" * (64 * KIB)
    grown, _ = grown_by(LineBuffer(limit=MIB), itertools.repeat(piece, 1_000))
    assert grown < 2 * MIB + MIB // 2  # the growing bytearray and, while it moves, its copy


@pytest.mark.parametrize("kind", BUFFERS)
def test_a_buffer_that_has_raised_drops_what_it_held_and_raises_the_same_again(
    kind: type[FrameBuffer | LineBuffer],
) -> None:
    buffer = kind(limit=10)
    with pytest.raises(RemoteProtocolError) as first:
        list(buffer.feed(b"\xff" * 20))
    assert not buffer.inside_frame
    for _ in range(3):
        with pytest.raises(RemoteProtocolError) as again:
            list(buffer.feed(b"x" * MIB))
        assert str(again.value) == str(first.value)
    assert not buffer.inside_frame


def test_a_reader_that_stops_half_way_gets_the_rest_and_nothing_twice() -> None:
    for buffer, data in (
        (FrameBuffer(), frame(b"a") + frame(b"b") + frame(b"c")),
        (LineBuffer(), b"a\nb\nc\n"),
    ):
        taken = []
        for body in buffer.feed(data):
            taken.append(body)
            break
        taken.extend(buffer.feed(b""))
        assert taken == [b"a", b"b", b"c"]


def test_a_reader_that_raises_half_way_leaves_the_rest() -> None:
    buffer = FrameBuffer()

    def reader() -> None:
        for _ in buffer.feed(frame(b"a") + frame(b"b")):
            raise KeyError("the reader's own")

    with pytest.raises(KeyError):
        reader()
    assert list(buffer.feed(frame(b"c"))) == [b"b", b"c"]


@pytest.mark.parametrize("kept", range(1, 7))
def test_a_torn_frame_is_a_lost_peer(kept: int) -> None:
    buffer = FrameBuffer()
    assert list(buffer.feed(frame(b"abc")[:kept])) == []
    assert buffer.inside_frame
    with pytest.raises(RemoteProtocolError, match="ended inside a frame"):
        buffer.eof()


def test_a_torn_line_is_a_lost_peer_and_blanks_at_the_end_are_not() -> None:
    buffer = LineBuffer()
    assert list(buffer.feed(b'{"op"')) == []
    with pytest.raises(RemoteProtocolError, match="ended inside a line"):
        buffer.eof()
    assert read(LineBuffer(), [b"{}\n \r"]) == ([b"{}"], None)


def test_whether_a_frame_has_begun_is_what_a_frame_timeout_can_watch() -> None:
    buffer = FrameBuffer()
    assert not buffer.inside_frame
    list(buffer.feed(frame(b"abc") + b"\x00"))
    assert buffer.inside_frame
    list(buffer.feed(b"\x00\x00\x01x"))
    assert not buffer.inside_frame


def test_blank_lines_and_carriage_returns_are_nothing() -> None:
    assert read(LineBuffer(), [b"\n \t\r\n\r\n  {}  \r\n\n"]) == ([b"{}"], None)


def test_bytes_that_only_python_takes_for_space_are_kept_for_the_codec_to_refuse() -> None:
    assert read(LineBuffer(), [b"\x0c\n\x0b{}\n"]) == ([b"\x0c", b"\x0b{}"], None)


def test_many_small_pieces_of_a_large_frame_cost_no_square() -> None:
    body = b"x" * FRAME_LIMIT
    pieces = cut(frame(body), range(0, FRAME_LIMIT, 97))
    assert read(FrameBuffer(), pieces) == ([body], None)
    assert read(LineBuffer(), [*cut(body, range(0, FRAME_LIMIT, 97)), b"\n"]) == ([body], None)


def test_what_was_searched_for_a_newline_is_not_searched_again() -> None:
    buffer = LineBuffer()
    list(buffer.feed(b"ab\ncde"))
    assert buffer._scanned == len(b"cde")
    list(buffer.feed(b"fg"))
    assert buffer._scanned == len(b"cdefg")


def test_a_frame_that_no_peer_would_take_is_our_own_fault() -> None:
    largest = FRAME_HARD_LIMIT + FRAME_OVERHEAD
    assert len(frame(bytes(largest))) == largest + 4
    assert len(line(bytes(largest))) == largest + 1
    for pack in (frame, line):
        with pytest.raises(LocalProtocolError, match="no peer takes more"):
            pack(bytes(largest + 1))


@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("limit", [0, -1, FRAME_HARD_LIMIT + FRAME_OVERHEAD + 1, 1 << 32])
def test_a_limit_outside_of_what_the_house_allows_is_refused(kind: type[FrameBuffer | LineBuffer], limit: int) -> None:
    with pytest.raises(ValueError, match="allowed is 1 to"):
        kind(limit)


def test_no_frame_that_any_limit_lets_through_looks_like_json() -> None:
    assert speaks_json(b'{"op":"hello"}'[0])
    firsts = {frame(b"")[0], frame(bytes(FRAME_HARD_LIMIT + FRAME_OVERHEAD))[0]}
    assert not any(map(speaks_json, range(max(firsts) + 1)))
