from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import InvalidArguments
from supervisor.core.arguments import INTEGER_MAX, INTEGER_MIN, is_cut, parse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTEGERS = st.integers(INTEGER_MIN, INTEGER_MAX)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(TEXTS, JSON, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_every_json_object_is_read_and_forwarded_as_it_came(
    values: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    read = parse(text)
    assert read.values == values
    assert read.text is text
    assert not read.fence_stripped


@given(st.text() | st.text(st.sampled_from('{}[]",:\\u19eE-. `~\ntrufalsNI'), max_size=30))
def test_any_text_is_arguments_or_invalid_arguments_and_nothing_else(text: str) -> None:
    try:
        said = json.dumps(parse(text).values, ensure_ascii=False, allow_nan=False)
    except InvalidArguments as error:
        said = str(error)
    said.encode()  # both can be sent


@given(st.dictionaries(TEXTS, JSON, max_size=5), st.data())
def test_cut_text_is_never_completed(values: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(values)
    with pytest.raises(InvalidArguments):
        parse(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.case("B118")
@pytest.mark.case("B119")
@pytest.mark.behaviour("M093")
@given(
    st.dictionaries(TEXTS, JSON, min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from(["{}", "```json\n{}\n```", "~~~\n{}\n~~~", "  {}"]),
)
def test_every_beginning_of_arguments_is_cut_and_the_whole_is_not(
    values: dict[str, object], ascii_only: bool, indent: int | None, around: str
) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    text = around.replace("{}", text)
    assert not is_cut(text)
    first = text.index("{") + 1
    assert [end for end in range(first, len(text)) if not is_cut(text[:end])] == []


@pytest.mark.parametrize(
    "text",
    ["", " ", "{}", "nonsense", '{"a": 1}}', "{'a': 1}", "I will do it.", '{"a": tru1}', "[]", "7", '{"a": 1, "a": 2}'],
)
def test_what_is_wrong_and_whole_is_not_cut(text: str) -> None:
    assert not is_cut(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ('{"a": 1', "cut off"),
        ('{"a": "half a str', "cut off: Unterminated string"),
        ('{"a": 1}}', "not JSON: Extra data: line 1 column 9"),
        ('{"a": 1} {}', "Extra data"),
        ("{'a': 1}", "double quotes"),
        ('{"a": 1,}', "not JSON"),
        ('{"a": "\n"}', "Invalid control character"),
        ("\ufeff{}", "not JSON"),
        ("[1]", "not an array"),
        ('"{}"', "not a string"),
        ("true", "not a boolean"),
        ("null", "not null"),
        ("12", "not a number"),
        ("NaN", "NaN"),
        ('{"a": 1, "b": 2, "a": 1}', "'a' stands more than once"),
        ('{"deep": [{"x": 1, "x": 2}]}', "'x' stands more than once"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1e999}', "Infinity"),
        ('{"a": -1e999}', "Infinity"),
        (f'{{"a": {INTEGER_MAX + 1}}}', "outside"),
        (f'{{"a": {INTEGER_MIN - 1}}}', "outside"),
        ('{"a": ' + "9" * 100_000 + "}", "outside"),
        (r'{"a": "\ud800"}', r"'\\ud800', half of a surrogate pair"),
        (r'{"\udc00": 1}', "half of a surrogate pair"),
        ('{"a": "\udfff"}', "half of a surrogate pair"),
        ('{"a": [[["' + "\\ude00\\ud83d" + '"]]]}', "half of a surrogate pair"),
    ],
)
def test_what_is_refused_is_told_in_the_parsers_own_words(text: str, words: str) -> None:
    with pytest.raises(InvalidArguments, match=words) as caught:
        parse(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("depth", [1, 63, 64])
def test_nesting_up_to_the_limit_is_read(depth: int) -> None:
    parse('{"a":' * depth + "1" + "}" * depth)


@pytest.mark.parametrize("depth", [65, 900, 5_000, 200_000])
def test_deeper_nesting_is_refused_at_any_depth(depth: int) -> None:
    for opening, closing in (('{"a":', "}"), ("[", "]")):
        with pytest.raises(InvalidArguments, match="deeper than 64"):
            parse('{"a":' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}")


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(parse('{"a":[' + ",".join(["[]"] * 500) + "]}").values["a"]) == 500


def test_integers_stay_exact_and_both_ends_of_the_range_are_in() -> None:
    read = parse(f'{{"a": {2**53}, "b": {2**53 + 1}, "low": {INTEGER_MIN}, "high": {INTEGER_MAX}, "minus_zero": -0.0}}')
    assert read.values["a"] + 1 == read.values["b"]
    assert (read.values["low"], read.values["high"]) == (INTEGER_MIN, INTEGER_MAX)
    assert math.copysign(1, read.values["minus_zero"]) == -1


def test_nul_and_whole_pairs_in_strings_are_text() -> None:
    assert parse(r'{"a": "\u0000", "b": "\ud83d\ude00"}').values == {"a": "\0", "b": "😀"}


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"a": 1}\n```',
        '```\n{"a": 1}\n```',
        '  \n````json5\n{"a": 1}\n````\n',
        '~~~ json\r\n{"a": 1}\r\n~~~',
        '```json\n\n{"a":\n 1}\n\n```',
    ],
)
def test_one_outer_fence_is_taken_off_and_recorded(text: str) -> None:
    read = parse(text)
    assert read.values == {"a": 1}
    assert read.fence_stripped
    assert read.text[0] + read.text[-1] == "{}"
    assert read.text in text


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"a": 1}',
        '{"a": 1}\n```',
        '```json\n```json\n{"a": 1}\n```\n```',
        '```json\n{"a": 1}\n~~~',
        'here it is:\n```json\n{"a": 1}\n```',
        '```json\n{"a": 1}\n```\nthat was it',
        '```run this now\n{"a": 1}\n```',
        '```{"a": 1}```',
        '```json\n{"a": 1}\nlost```',
        "```\n```",
        "```",
        "`",
    ],
)
def test_any_other_fence_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments):
        parse(text)
