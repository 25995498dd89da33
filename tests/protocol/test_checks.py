"""The forms of checks: what they look like in JSON, and that each has words of its own."""

from __future__ import annotations

import msgspec
import pytest

from protocol._checks import Check, FieldsCheck, FieldValue, FileCheck, PersonCheck, say_check

FORMS: list[tuple[str, Check, str]] = [
    ('"pytest -q"', "pytest -q", "pytest -q"),
    ('{"kind": "file", "path": "out"}', FileCheck("out"), "file 'out' is there"),
    ('{"kind": "file", "path": "out", "exists": false}', FileCheck("out", exists=False), "file 'out' is not there"),
    ('{"kind": "file", "path": "out", "matches": "^a"}', FileCheck("out", matches="^a"), "a line that matches '^a'"),
    ('{"kind": "file", "path": "out", "equals": "abc"}', FileCheck("out", equals="abc"), "text of 3 characters"),
    ('{"kind": "fields", "fields": ["a", "b"]}', FieldsCheck(("a", "b")), "fields a, b with evidence for each: 1"),
    (
        '{"kind": "fields", "fields": ["a"], "evidence": 0, "least_evidence": 3}',
        FieldsCheck(("a",), 0, 3),
        "evidence for each: 0, 3 in all",
    ),
    ('{"kind": "person"}', PersonCheck(), "a person confirms the answer"),
    ('{"kind": "person", "question": "ok?"}', PersonCheck("ok?"), "a person confirms: ok?"),
]


@pytest.mark.parametrize(("text", "check", "words"), FORMS)
def test_a_check_comes_through_json_and_says_what_it_wants(text: str, check: Check, words: str) -> None:
    assert msgspec.json.decode(text, type=Check) == check
    assert msgspec.convert(msgspec.to_builtins(check), Check) == check
    assert words in say_check(check)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"kind": "word"}',
        '{"kind": "file"}',
        '{"kind": "file", "path": "out", "mode": 1}',
        '{"kind": "fields", "fields": "a"}',
        '{"kind": "fields", "fields": ["a"], "evidence": -1}',
        '{"kind": "person", "question": 1}',
        "1",
    ],
)
def test_what_is_no_check_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Check)


def test_a_field_has_a_text_and_the_names_of_evidence() -> None:
    assert msgspec.json.decode('{"value": "4711"}', type=FieldValue) == FieldValue("4711")
    for text in ('{"value": 4711}', '{"evidence": []}', '{"value": "x", "sure": true}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=FieldValue)
