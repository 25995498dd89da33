"""Bytes to events, wherever the bytes are cut."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.models import server_sent
from supervisor.models.server_sent import EventSizeError, EventStream, ServerEvent

SPOKEN = b"".join(
    [
        b"\xef\xbb\xbf: hello\n\n",
        b"event: a\ndata: 1\ndata:2\nid: 7\n\n",
        b"data: \xc3\xa4\r\n\r\n",
        b"id: 3\n\n",
        b"event: b\rdata: x\r\r",
        b'data: {"a": "\xe2\x80\xa8"}\n\n',
    ]
)
EVENTS = [ServerEvent("a", "1\n2"), ServerEvent("", "ä"), ServerEvent("b", "x"), ServerEvent("", '{"a": "\u2028"}')]


@given(st.sets(st.integers(1, len(SPOKEN) - 1)))
def test_events_are_the_same_wherever_the_pieces_end(places):
    stream, cuts = EventStream(), [0, *sorted(places), len(SPOKEN)]
    assert [one for a, b in pairwise(cuts) for one in stream.feed(SPOKEN[a:b])] == EVENTS


def test_each_byte_alone_is_enough():
    stream = EventStream()
    assert [event for at in range(len(SPOKEN)) for event in stream.feed(SPOKEN[at : at + 1])] == EVENTS


@pytest.mark.parametrize("rest", [b"data: x", b"data: x\n", b"event: a\n\n", b"data"])
def test_what_no_empty_line_ends_is_no_event(rest):
    assert EventStream().feed(rest) == []


def test_separators_that_are_text_to_json_end_no_line():
    assert EventStream().feed("data: a\u2028b\u0085c\x0bd\n\n".encode()) == [ServerEvent("", "a\u2028b\u0085c\x0bd")]


def test_bytes_that_are_no_text_are_replaced():
    assert EventStream().feed(b"data: a\xff\n\n") == [ServerEvent("", "a\ufffd")]


@pytest.mark.parametrize("piece", [b"x" * 60, b"data: " + b"x" * 50 + b"\n"])
def test_an_event_without_end_is_refused(piece, monkeypatch):
    monkeypatch.setattr(server_sent, "MOST_BYTES", 100)
    stream = EventStream()
    stream.feed(piece)
    with pytest.raises(EventSizeError):
        stream.feed(piece)


def test_a_long_line_is_looked_through_once_however_small_its_pieces_are(monkeypatch):
    """Looked through again at each piece, an event of a megabyte in small pieces stops the daemon for seconds."""
    looked_at: list[int] = []

    class Counted:
        def split(self, data: bytes) -> list[bytes]:
            looked_at.append(len(data))
            return re.split(rb"\n", data)

    monkeypatch.setattr(server_sent, "_LINE_END", Counted())
    stream = EventStream()
    events = [event for piece in (b"data: ", *[b"x" * 10] * 1000, b"\n\n") for event in stream.feed(piece)]
    assert events == [ServerEvent("", "x" * 10_000)]
    assert sum(looked_at) == len(b"data: \n\n") + 10_000


def test_many_events_are_not_one_that_is_too_large(monkeypatch):
    monkeypatch.setattr(server_sent, "MOST_BYTES", 100)
    stream = EventStream()
    assert sum(len(stream.feed(b"data: " + b"x" * 50 + b"\n\n")) for _ in range(10)) == 10
