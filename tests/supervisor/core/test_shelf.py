from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.shelf import Kept, Shelf

MIB = 1 << 20
MS = 1_000_000


def test_what_is_too_old_goes_oldest_first_and_is_off_the_books() -> None:
    shelf = Shelf(quota=100 * MIB, ttl_ms=1_000)
    for number in range(4):
        shelf.put(Kept(f"/{number}", MIB, number * 100 * MS))
    assert shelf.due(999 * MS) == []
    assert shelf.due(1_100 * MS) == ["/0", "/1"]
    assert shelf.due(1_100 * MS) == []
    assert (len(shelf), shelf.bytes) == (2, 2 * MIB)


def test_over_the_quota_the_oldest_go_until_the_rest_fits() -> None:
    shelf = Shelf(quota=3 * MIB, ttl_ms=1_000)
    for number in range(5):
        shelf.put(Kept(f"/{number}", MIB, number))
    assert shelf.full
    assert shelf.due(10) == ["/0", "/1"]
    assert (shelf.full, shelf.bytes) == (False, 3 * MIB)


def test_the_newest_stays_whatever_it_takes() -> None:
    shelf = Shelf(quota=MIB, ttl_ms=1_000)
    shelf.put(Kept("/small", 10, 0))
    shelf.put(Kept("/large", 5 * MIB, 1))
    assert shelf.due(2) == ["/small"]
    assert not shelf.full


def test_many_small_files_are_counted_as_blocks_and_bounded_in_number() -> None:
    shelf = Shelf(quota=10 * 4096, ttl_ms=1_000, most=8)
    for number in range(12):
        shelf.put(Kept(f"/{number}", 1, number))
    assert shelf.bytes == 12 * 4096
    assert shelf.due(20) == ["/0", "/1", "/2", "/3"]


def test_what_is_weighed_later_counts_as_it_weighs() -> None:
    shelf = Shelf(quota=MIB, ttl_ms=1_000)
    shelf.put(Kept("/work", 0, 0))
    shelf.put(Kept("/other", 0, 0))
    shelf.weighed("/work", 2 * MIB)
    shelf.weighed("/gone", 5 * MIB)
    assert shelf.due(1) == ["/work"]
    assert shelf.bytes == 4096


def test_what_an_earlier_life_left_is_older_than_what_this_one_keeps() -> None:
    shelf = Shelf(quota=100 * MIB, ttl_ms=1_000)
    shelf.put(Kept("/new", MIB, 50 * MS))
    shelf.recall([Kept("/b", MIB, -200 * MS), Kept("/a", MIB, -300 * MS), Kept("/new", 7 * MIB, -100 * MS)])
    assert shelf.bytes == 3 * MIB
    assert shelf.due(799 * MS) == ["/a"]
    assert shelf.due(2_000 * MS) == ["/b", "/new"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40_000)), max_size=40), st.integers(8_192, 60_000))
def test_the_account_is_the_sum_of_what_is_there_and_within_the_quota(puts: list[tuple[int, int]], quota: int) -> None:
    shelf = Shelf(quota, ttl_ms=1_000, most=5)
    there: dict[str, int] = {}
    for at, (number, size) in enumerate(puts):
        path = f"/{number}"
        there.pop(path, None)
        there[path] = max(4096, size)
        shelf.put(Kept(path, size, at))
        for gone in shelf.due(at):
            assert gone == next(iter(there))
            del there[gone]
        assert shelf.bytes == sum(there.values())
        assert len(shelf) == len(there) <= 5
        assert shelf.bytes <= quota or len(there) == 1
