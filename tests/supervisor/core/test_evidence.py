"""What an answer may rest on: all that a run has, within a bound."""

from __future__ import annotations

import json

from supervisor.core.evidence import MOST_KEPT, Evidence


def test_a_run_has_what_was_added_and_nothing_else() -> None:
    kept = Evidence()
    kept.add("doc-1")
    kept.add("long " * 1_000)
    assert "doc-1" in kept
    assert "long " * 1_000 in kept
    assert "doc-2" not in kept
    assert "long " * 1_001 not in kept


def test_the_latest_are_kept_and_what_is_found_again_counts_as_late() -> None:
    kept = Evidence()
    for number in range(MOST_KEPT):
        kept.add(f"doc-{number}")
    kept.add("doc-0")
    kept.add("one more")
    assert "doc-0" in kept
    assert "doc-1" not in kept
    assert kept.latest(2) == ["doc-0", "one more"]
    assert len(kept.dump()) == MOST_KEPT


def test_it_is_the_same_in_another_life() -> None:
    kept = Evidence()
    for name in ("doc-1", "x" * 5_000, "c_1"):
        kept.add(name)
    again = Evidence(json.loads(json.dumps(kept.dump())))
    assert all(name in again for name in ("doc-1", "x" * 5_000, "c_1"))
    assert again.dump() == kept.dump()
