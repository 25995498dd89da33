"""What a contract calls volatile is covered, what it does not stays, and the work is bounded."""

from __future__ import annotations

import pytest

from supervisor.core.scrubbing import MOST_TEXT, Scrubber, scrub_of


def scrubbed(text: str, *entries: str) -> str:
    return Scrubber(scrub_of(entries)).text(text)


@pytest.mark.parametrize(
    ("entry", "text", "left"),
    [
        ("in *s", "3 passed in 0.03s", "3 passed in *s"),
        ("in *s", "3 passed in 0.03 s", "3 passed in 0.03 s"),
        ("took * ms", "took 17 ms, took 4 ms", "took * ms, took * ms"),
        ("id=*;", "id=4f;x id=;", "id=*;x id=*;"),
        ("pid *", "pid 4711\npid 4712", "pid *\npid *"),
        ("pid *", "pid \n4712", "pid *\n4712"),
        ("at * *,", "at 2026-11-30 02:38:22, ok", "at * *, ok"),
        ("0x**", "0xdeadbeef", "0x*"),
        ("a.*b", "axxb a.xxb", "axxb a.*b"),
        (r"\*\1", r"\x\1", r"\*\1"),
        ("[*]", "[a] [b]", "[*] [*]"),
        ("^*", "^a a^", "^* a^*"),
        ("é*", "é12", "é*"),
    ],
)
def test_a_star_covers_a_run_without_blanks_up_to_what_follows_it(entry: str, text: str, left: str) -> None:
    assert scrubbed(text, entry) == left


def test_a_run_is_covered_up_to_64_characters() -> None:
    assert scrubbed("id " + "x" * 64, "id *") == "id *"
    assert scrubbed("id " + "x" * 65, "id *") == "id *x"
    assert scrubbed("<" + "x" * 65 + ">", "<*>") == "<" + "x" * 65 + ">"


def test_patterns_are_tried_one_after_the_other() -> None:
    assert scrubbed("a1 b2", "a*", "b*") == "a* b*"


def test_the_content_loses_the_fields_that_are_named_and_nothing_else() -> None:
    content = {"took": 3, "files": [{"at": 1, "name": "a 1"}, {"at": 2, "took": 5}, 7], "deep": {"took": 4}}
    entries = ("$.took", "$.files.at", "$.no.such", "$.files.name.x", "a *")
    left = Scrubber(scrub_of(entries)).content(content)
    assert left == {"files": [{"name": "a *"}, {"took": 5}, 7], "deep": {"took": 4}}
    assert content["took"] == 3
    assert content["files"][0] == {"at": 1, "name": "a 1"}


def test_of_a_result_so_much_text_is_scrubbed_and_what_is_left_is_compared_as_it_is() -> None:
    scrubber = Scrubber(scrub_of(("a*",)))
    assert scrubber.text("a" + " " * MOST_TEXT) == "a" + " " * MOST_TEXT
    assert scrubber.text("a1" + " " * (MOST_TEXT - 4)) == "a*" + " " * (MOST_TEXT - 4)
    assert scrubber.content(["a1", "a2"]) == ["a*", "a2"]


def test_a_text_made_to_be_slow_takes_no_more_steps_than_any_other() -> None:
    """A pattern that could look back would need some 10^14 steps here; this one is done before anybody notices."""
    entry = "a*" * 8 + "b"
    assert scrubbed("a" * MOST_TEXT, entry) == "a" * MOST_TEXT
