from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol import Contract, InvalidArguments, ToolDescription
from supervisor.core.schemas import ArgumentSchema, SchemaError

SHELL = {
    "type": "object",
    "properties": {
        "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "env": {"anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}, {"type": "null"}]},
        "count": {"type": "integer"},
        "kind": {"enum": ["sh", "bash", "python3", "node"]},
        "most": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
    },
    "required": ["argv"],
    "additionalProperties": False,
}


def schema(body: dict[str, Any]) -> ArgumentSchema:
    return ArgumentSchema(ToolDescription("shell", "", Contract(), body))


@pytest.mark.parametrize(
    "values", [{"argv": ["true"]}, {"argv": ["a\0"], "count": 2**64 - 1}, {"argv": [""], "env": None}]
)
def test_fitting_arguments_pass(values: dict[str, Any]) -> None:
    schema(SHELL).check(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, 'arguments do not fit shell: "argv" is a required property'),
        ({"argv": []}, "argv: "),
        ({"argv": ["a", 3]}, 'argv[1]: 3 is not of type "string"'),
        ({"argv": ["a"], "env": {"X": 1}}, 'env.X: 1 is not of type "string"'),
        ({"argv": ["a"], "count": 1.5}, "count: 1.5 is not of type"),
        ({"argv": ["a"], "cmd": 1}, "'cmd' was unexpected"),
        ({"argv": ["a"], "kind": "perl"}, 'kind: "perl" is not one of "sh", "bash", "python3", "node"'),
        ({"argv": ["a"], "most": 0}, "most: 0 is less than the minimum of 1"),
        ({"argv": ["a"], "most": "x"}, 'most: "x" is not of type "integer", or "x" is not of type "null"'),
    ],
)
def test_a_misfit_is_told_with_its_path(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        schema(SHELL).check(values)
    assert words in str(caught.value)


def test_every_fault_is_counted_and_the_first_are_told() -> None:
    with pytest.raises(InvalidArguments, match=r"argv\[4\].*and 35 more$") as caught:
        schema(SHELL).check({"argv": [0] * 40})
    assert "argv[5]" not in str(caught.value)


def test_a_huge_value_is_told_by_both_its_ends() -> None:
    with pytest.raises(InvalidArguments) as caught:
        schema(SHELL).check({"argv": "x" * 1_000_000, "k" * 1_000_000: 1})
    assert 'is not of type "array"' in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_half_a_million_faults_are_told_by_their_field() -> None:
    with pytest.raises(InvalidArguments, match=r"shell: env \(too large") as caught:
        schema(SHELL).check({"argv": ["a"], "env": {str(number): number for number in range(500_000)}})
    assert len(str(caught.value)) < 1_000


def test_large_arguments_without_a_bad_field_still_get_words() -> None:
    with pytest.raises(InvalidArguments, match="one is missing"):
        schema(SHELL).check({"env": {str(number): "" for number in range(5_000)}})


@pytest.mark.parametrize(
    "body",
    [
        {"type": "no_such_type"},
        {"properties": {"a": {"pattern": "("}}},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "#/$defs/absent"},
    ],
)
def test_a_schema_that_is_none_or_looks_outside_itself_is_refused_by_the_tools_name(body: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="the schema of shell"):
        schema(body)


def test_a_reference_reads_no_file_even_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    with pytest.raises(SchemaError, match="Retrieval is disabled"):
        schema({"$ref": f"file://{tmp_path}/schema.json"})


def test_references_inside_the_schema_are_followed() -> None:
    body = {"$ref": "#/$defs/Args", "$defs": {"Args": {"type": "object", "required": ["a"]}}}
    with pytest.raises(InvalidArguments, match='"a" is a required'):
        schema(body).check({})


def test_a_pattern_that_backtracks_for_ever_is_a_misfit_not_a_hang() -> None:
    body = {"properties": {"a": {"type": "string", "pattern": r"^(?=a)(?:(a+)+\1)+$"}}}
    with pytest.raises(InvalidArguments, match=r"(?i)backtrack"):
        schema(body).check({"a": "a" * 60 + "b"})
