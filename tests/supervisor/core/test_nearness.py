from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.nearness import MOST_CHARACTERS, MOST_WORDS, is_near, words

LONG = "how does a supervisor confirm that every process of a killed tree has really gone before it answers"


def near(one: str, other: str) -> bool:
    return is_near(words(json.dumps({"query": one})), words(json.dumps({"query": other})))


@pytest.mark.behaviour("M146")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("trio cancel scope", "Scope: cancel, Trio!"),
        ("trio cancel scopes", "the cancel scope of trio"),
        ("how to cancel in trio", "please cancel trio"),
        (LONG, LONG.replace("confirm", "prove")),
        ("straße und größe", "GRÖßE UND STRASSE"),
        ("上海明天的天气预报", "明天上海的天气预报"),
        ("one\ntwo three", "one two\tthree"),
    ],
)
def test_reworded_requests_are_near(one, other):
    assert near(one, other)
    assert near(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("trio cancel scope", "trio nursery scope"),
        ("trio cancel scope", "asyncio cancel scope"),
        ("上海明天的天气预报", "北京昨天的新闻"),
        ("größe", "masse"),
        (LONG + " 7", LONG + " 8"),
        (LONG + " page2", LONG + " page3"),
        (LONG, LONG + " in 2024"),
        (LONG, LONG.replace("supervisor", "shell").replace("killed", "stopped").replace("answers", "returns")),
    ],
)
def test_other_words_and_other_numbers_are_not(one, other):
    assert not near(one, other)


def test_a_text_is_the_same_whether_its_encoder_escapes_or_not():
    for text in ("größe", "上海 天气", 'a "quoted" word', "two\nlines"):
        assert words(json.dumps(text)) == words(json.dumps(text, ensure_ascii=False))


def test_nothing_is_near_to_no_words():
    assert not is_near(words(""), words(""))
    assert not is_near(words("{}"), words("{}"))
    assert not is_near(words("the of a"), words("a of the"))


def test_what_is_too_long_to_compare_is_near_to_nothing():
    assert words("word " * (MOST_CHARACTERS // 5 + 1)) == frozenset()
    assert words(" ".join(f"w{n}x" for n in range(MOST_WORDS + 1))) == frozenset()
    assert len(words(" ".join(f"w{n}x" for n in range(MOST_WORDS)))) == MOST_WORDS


@given(st.text(max_size=200), st.text(max_size=200))
def test_nearness_has_no_direction_and_order_and_case_are_nothing_to_it(one, other):
    assert near(one, other) == near(other, one)
    if words(one):
        assert is_near(words(one), words(" ".join(reversed(one.split()))))
