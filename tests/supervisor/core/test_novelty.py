from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.novelty import MOST_SEEN, Novelty


def test_new_is_what_was_never_seen_and_not_what_differs_from_the_last():
    novelty = Novelty()
    assert [novelty.see("o", name) for name in "ababc"] == [True, True, False, False, True]


def test_things_of_two_kinds_are_never_the_same():
    novelty = Novelty()
    assert [novelty.see(kind, "x") for kind in "oaov"] == [True, True, False, True]


def test_long_names_are_told_apart_and_take_no_more_room():
    novelty = Novelty()
    assert novelty.see("v", "x" * 10_000 + "1")
    assert novelty.see("v", "x" * 10_000 + "2")
    assert not novelty.see("v", "x" * 10_000 + "1")
    assert novelty.see("v", "\ud800" * 100)
    assert len(json.dumps(novelty.dump())) < 250


def test_a_step_with_news_ends_the_row_and_one_without_lengthens_it():
    novelty = Novelty()
    rows = []
    for name in "abbcccc":
        novelty.see("o", name)
        novelty.did(poll=False)
        rows.append(novelty.step_over())
    assert rows == [0, 0, 1, 0, 1, 2, 3]
    assert novelty.step_over() == 4  # a step without any call brings nothing either


def test_a_step_of_polls_alone_does_neither():
    novelty = Novelty()
    novelty.did(poll=False)
    assert novelty.step_over() == 1
    novelty.did(poll=True)
    assert novelty.step_over() == 1
    novelty.did(poll=True)
    novelty.did(poll=False)
    assert novelty.step_over() == 2
    novelty.did(poll=True)
    novelty.see("o", "changed")
    assert novelty.step_over() == 0


@settings(max_examples=20)
@given(st.lists(st.integers(0, MOST_SEEN * 2), max_size=50))
def test_the_things_seen_last_are_remembered(extra):
    novelty = Novelty()
    for number in range(MOST_SEEN):
        novelty.see("o", str(number))
    for number in extra:
        novelty.see("o", str(number))
        assert not novelty.see("o", str(number))
    assert len(novelty) == MOST_SEEN


def test_what_is_seen_again_is_remembered_the_longer():
    novelty = Novelty()
    for number in range(MOST_SEEN):
        novelty.see("o", str(number))
    novelty.see("o", "0")
    novelty.see("o", "one more")
    assert not novelty.see("o", "0")
    assert novelty.see("o", "1")
