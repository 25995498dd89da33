"""The killer's table: every word where both sides look for it, aligned, in a cache line of its slot's own."""

from __future__ import annotations

import itertools
import mmap
import os
import re
from collections.abc import Iterator

import pytest

from protocol import _slots as layout

CACHE_LINE = 64
WORDS = {
    "term": layout.TERM,
    "deadline": layout.DEADLINE,
    "generation": layout.GENERATION,
    "killed": layout.KILLED,
    "seen": layout.SEEN,
}
SLOTS = 97


@pytest.fixture
def shared() -> Iterator[tuple[memoryview, memoryview]]:
    """Two mappings of one memfd, as the daemon and the killer have them."""
    memory = os.memfd_create("test-table", os.MFD_CLOEXEC)
    os.ftruncate(memory, layout.table_bytes(SLOTS))
    maps = [mmap.mmap(memory, layout.table_bytes(SLOTS)) for _ in range(2)]
    views = [memoryview(one).cast("Q") for one in maps]
    yield views[0], views[1]
    for view, one in zip(views, maps, strict=True):
        view.release()
        one.close()
    os.close(memory)


def places() -> list[tuple[str, int]]:
    """Every word of the table that has a meaning, with its index."""
    header = [("next_wake", layout.NEXT_WAKE), ("heartbeat", layout.HEARTBEAT)]
    return header + [
        (f"{name} of {slot}", layout.slot_base(slot) + word) for slot in range(SLOTS) for name, word in WORDS.items()
    ]


def test_no_two_words_share_a_place_and_all_lie_inside_the_table() -> None:
    indices = [index for _, index in places()]
    assert len(set(indices)) == len(indices)
    assert max(indices) * layout.WORD_BYTES < layout.table_bytes(SLOTS)
    assert min(indices) == 0


def test_every_word_is_aligned_to_its_own_size() -> None:
    assert layout.WORD_BYTES == 8
    for _, index in places():
        assert (index * layout.WORD_BYTES) % 8 == 0


def test_no_two_slots_share_a_cache_line_nor_with_the_header() -> None:
    lines = [{(layout.slot_base(slot) + word) * 8 // CACHE_LINE for word in WORDS.values()} for slot in range(SLOTS)]
    lines.append({index * 8 // CACHE_LINE for index in (layout.NEXT_WAKE, layout.HEARTBEAT)})
    assert all(len(one) == 1 for one in lines)
    for one, other in itertools.combinations(lines, 2):
        assert not one & other


def test_a_slot_has_room_for_its_words() -> None:
    assert max(WORDS.values()) < layout.WORDS_PER_SLOT
    assert max(layout.NEXT_WAKE, layout.HEARTBEAT) < layout.HEADER_WORDS


@pytest.mark.parametrize("slots", [0, 1, 2, 64, 1000])
def test_the_size_of_a_table_tells_how_many_slots_it_has(slots: int) -> None:
    with memoryview(bytearray(layout.table_bytes(slots))) as raw, raw.cast("Q") as table:
        assert layout.slots_in(table) == slots


def test_what_one_side_writes_the_other_side_reads_and_nothing_else_changes(
    shared: tuple[memoryview, memoryview],
) -> None:
    daemon, killer = shared
    for value, (_, index) in enumerate(places(), start=1):
        (daemon if value % 2 else killer)[index] = value
    for value, (name, index) in enumerate(places(), start=1):
        assert daemon[index] == killer[index] == value, name


def test_the_largest_instant_fits_a_word(shared: tuple[memoryview, memoryview]) -> None:
    daemon, killer = shared
    daemon[layout.NEXT_WAKE] = layout.NEVER
    assert killer[layout.NEXT_WAKE] == layout.NEVER > 2**61


def test_the_page_at_the_top_describes_the_words_in_their_order() -> None:
    described = re.findall(r"word (\d)  (\w+)", layout.__doc__ or "")
    slot, header = described[:5], described[5:]
    assert slot == [("0", "term_ns"), ("1", "deadline_ns"), ("2", "generation"), ("3", "killed_ns"), ("4", "seen")]
    assert [layout.TERM, layout.DEADLINE, layout.GENERATION, layout.KILLED, layout.SEEN] == [0, 1, 2, 3, 4]
    assert header == [("0", "next_wake_ns"), ("1", "heartbeat")]
    assert [layout.NEXT_WAKE, layout.HEARTBEAT] == [0, 1]
