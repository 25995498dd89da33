"""What a contract may call volatile in a result."""

from __future__ import annotations

import pytest

from protocol._scrub import ENTRIES, LENGTH, content_way, refuse_bad_scrub


def test_an_entry_is_a_way_into_the_content_or_a_pattern() -> None:
    assert content_way("$.stats.took_ms") == ["stats", "took_ms"]
    assert content_way("in *s") is None


@pytest.mark.parametrize("entry", ["$.a", "$.a.b", "in *s", "*ms", "at * * *:", "$5*", "x" * (LENGTH - 1) + "*"])
def test_an_entry_that_covers_something_is_taken(entry: str) -> None:
    refuse_bad_scrub((entry,))


@pytest.mark.parametrize(
    "entry", ["", "*", "* *", "took", "$.", "$.a..b", "$.a.", "x" * LENGTH + "*", "$." + "x" * LENGTH]
)
def test_an_entry_that_covers_nothing_or_everything_is_refused(entry: str) -> None:
    with pytest.raises(
        ValueError, match=r"scrub has '.*; allowed: '\$\.field\.field' of the content, or a text in which"
    ):
        refuse_bad_scrub((entry,))


def test_there_may_be_so_many_entries_and_no_more() -> None:
    entries = tuple(f"{number} *" for number in range(ENTRIES + 1))
    refuse_bad_scrub(entries[:-1])
    with pytest.raises(ValueError, match=f"scrub has {ENTRIES + 1} entries; allowed: at most {ENTRIES}"):
        refuse_bad_scrub(entries)
