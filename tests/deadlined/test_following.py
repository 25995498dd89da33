from __future__ import annotations

import pytest

from deadlined._following import EventCursor, OutputCursor
from protocol._client_messages import Events, OutputChunk
from protocol._events import Event


def chunk(cursor: OutputCursor, data: bytes, settled: bool = False) -> bytes:
    asked = cursor.next_request()
    return cursor.take(OutputChunk(0, asked.call, asked.offset, data, settled))


def test_a_full_chunk_means_that_there_is_more_at_once_and_a_short_one_that_it_is_time_to_rest() -> None:
    cursor = OutputCursor("c_1")
    most = cursor.next_request().limit
    assert chunk(cursor, b"x" * most) == b"x" * most
    assert (cursor.caught_up, cursor.ended, cursor.offset) == (False, False, most)
    assert chunk(cursor, b"y") == b"y"
    assert (cursor.caught_up, cursor.ended, cursor.offset) == (True, False, most + 1)
    assert chunk(cursor, b"") == b""
    assert (cursor.caught_up, cursor.ended) == (True, False)


def test_of_a_settled_call_it_reads_to_an_empty_chunk_without_rest() -> None:
    cursor = OutputCursor("c_1")
    chunk(cursor, b"end", settled=True)
    assert (cursor.caught_up, cursor.ended) == (False, False)
    chunk(cursor, b"", settled=True)
    assert (cursor.caught_up, cursor.ended) == (False, True)


def event(kind: str) -> Event:
    return Event(1, 0, kind, None, "r_1", 0, {}, "")


@pytest.mark.parametrize(("run", "ends"), [("r_1", True), (None, False)])
def test_only_a_run_that_is_followed_ends_and_with_its_settlement(run: str | None, ends: bool) -> None:
    cursor = EventCursor(0, None, follow=True, run=run)
    for answer in (Events(1, [], 3), Events(1, [event("step_begun")], 4)):
        cursor.take(answer)
        assert not cursor.ended
    cursor.take(Events(1, [event("run_settled"), event("effect_closed")], 9))
    assert cursor.ended is ends
    asked = cursor.next_request()
    assert (asked.after, asked.run) == (9, run)


def test_what_is_not_followed_is_read_to_its_end_beyond_a_settlement() -> None:
    cursor = EventCursor(0, None, follow=False, run="r_1")
    cursor.take(Events(1, [event("run_settled")], 9))
    assert not cursor.ended
    cursor.take(Events(1, [], 9))
    assert cursor.ended
