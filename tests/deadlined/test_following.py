from __future__ import annotations

from deadlined._following import OutputCursor
from protocol._client_messages import OutputChunk


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
