"""Templates of argv: a value fills an element and never chooses one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocol import InvalidArguments
from toolworkers._context import Context
from toolworkers._plans import CommandPlan
from toolworkers._templates import Slot, parse_element, render, template_tool

_LOG = {
    "kind": "command",
    "argv": ["git", "-C", "{dir}", "log", "--max-count={n}", "--", "{paths...}"],
    "arguments": {"dir": "str", "n": "int"},
    "read_only": True,
}


def _argv(table: dict[str, Any], **arguments: Any) -> list[str]:
    made = template_tool("t", table)
    plan = made.call(made.decode(json.dumps(arguments)), Context(deadline_ns=0, workdir="/w"))
    assert isinstance(plan, CommandPlan)
    return plan.argv


def _one(element: str, kind: Any = "str", *before: str) -> dict[str, Any]:
    return {"argv": ["prog", *before, element], "arguments": {"x": kind}}


def test_the_published_example_makes_the_argv_it_says() -> None:
    assert _argv(_LOG, dir="d", n=3, paths=["a b", "-c", ""]) == [
        "git", "-C", "d", "log", "--max-count=3", "--", "a b", "-c", "",
    ]  # fmt: skip


def test_the_schema_comes_from_the_declared_arguments() -> None:
    table = _LOG | {
        "arguments": {
            "dir": {"type": "str", "description": "where", "choices": ["a", "b"]},
            "n": {"type": "int", "default": 10, "minimum": 1, "maximum": 50},
        }
    }
    schema = template_tool("log", table).schema
    assert schema["required"] == ["dir"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["n"] == {"type": "integer", "minimum": 1, "maximum": 50, "default": 10}
    assert schema["properties"]["dir"] == {"description": "where", "enum": ["a", "b"]}
    assert schema["properties"]["paths"]["items"] == {"type": "string"}


def test_what_is_no_template_field_is_the_contract() -> None:
    made = template_tool("log", _LOG | {"timeout_ms": 700, "description": "History."})
    assert (made.contract.kind, made.contract.read_only, made.contract.timeout_ms) == ("command", True, 700)
    assert made.description == "History."


def test_defaults_fill_in_and_an_undeclared_spread_is_any_number_of_texts() -> None:
    table = _LOG | {"arguments": {"dir": {"type": "str", "default": "."}, "n": {"type": "int", "default": 10}}}
    assert _argv(table) == ["git", "-C", ".", "log", "--max-count=10", "--"]


def test_a_list_default_is_not_shared_between_calls() -> None:
    made = template_tool("t", {"argv": ["p", "{l...}"], "arguments": {"l": {"type": "[str]", "default": ["a"]}}})
    first = made.decode("{}")
    first["l"].append("b")
    assert made.decode("{}") == {"l": ["a"]}


@pytest.mark.parametrize(
    "arguments",
    [{"dir": "d"}, {"dir": "d", "n": "3"}, {"dir": "d", "n": 3.0}, {"dir": 1, "n": 3}, {"dir": "d", "n": 3, "x": 1},
     {"dir": "d", "n": 3, "paths": "a"}, {"dir": "d", "n": 3, "paths": [1]}],
)  # fmt: skip
def test_arguments_of_another_shape_are_invalid(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        _argv(_LOG, **arguments)


@pytest.mark.parametrize("value", ["-x", "--", "-", "--upload-pack=evil"])
def test_a_lone_value_that_begins_with_a_dash_is_refused(value: str) -> None:
    with pytest.raises(InvalidArguments, match="would be read as an option of prog"):
        _argv(_one("{x}"), x=value)


def test_a_negative_number_alone_is_refused_too_and_glued_it_is_not() -> None:
    with pytest.raises(InvalidArguments):
        _argv(_one("{x}", "int"), x=-9)
    assert _argv(_one("-n{x}", "int"), x=-9) == ["prog", "-n-9"]


def test_each_value_of_a_spread_is_judged() -> None:
    with pytest.raises(InvalidArguments):
        _argv({"argv": ["prog", "{x...}"]}, x=["a", "-b"])


def test_after_a_literal_separator_a_value_may_begin_with_a_dash() -> None:
    assert _argv(_one("{x}", "str", "--"), x="-x") == ["prog", "--", "-x"]


def test_a_separator_that_came_as_a_value_opens_nothing() -> None:
    table = {"argv": ["prog", "{a}", "{b}"], "arguments": {"a": "str", "b": "str"}}
    with pytest.raises(InvalidArguments):
        _argv(table, a="--", b="-x")


def test_an_empty_value_does_not_uncover_a_dash() -> None:
    table = {"argv": ["prog", "{a}{b}"], "arguments": {"a": "str", "b": "str"}}
    with pytest.raises(InvalidArguments):
        _argv(table, a="", b="-x")
    with pytest.raises(InvalidArguments):
        _argv({"argv": ["prog", "{a}--b"], "arguments": {"a": "str"}}, a="")


def test_a_value_within_an_element_stays_within_it() -> None:
    assert _argv(_one("--opt={x}"), x="-y --z 'q' $HOME *") == ["prog", "--opt=-y --z 'q' $HOME *"]


@pytest.mark.parametrize("value", ["a\0b", "x" * 131_072])
def test_nul_and_oversize_are_refused(value: str) -> None:
    with pytest.raises(InvalidArguments):
        _argv(_one("--opt={x}"), x=value)


def test_booleans_are_said_as_programs_say_them_and_braces_can_be_literal() -> None:
    assert _argv(_one("--color={x}", "bool"), x=True) == ["prog", "--color=true"]
    assert _argv(_one("{{{x}}}"), x="a") == ["prog", "{a}"]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "a list of texts, the program first"),
        ({"argv": []}, "a list of texts, the program first"),
        ({"argv": "git log"}, "a list of texts, the program first"),
        ({"argv": ["git", 3]}, "a list of texts, the program first"),
        ({"argv": ["a\0"]}, "NUL"),
        ({"argv": ["{x}"], "arguments": {"x": "str"}}, "literal name of a program"),
        ({"argv": ["a{x}"], "arguments": {"x": "str"}}, "literal name of a program"),
        ({"argv": [""]}, "literal name of a program"),
        ({"argv": ["./run"]}, "a name on PATH or an absolute path"),
        ({"argv": ["a", "{x}"]}, "which arguments does not declare: x = str"),
        ({"argv": ["a", "{x"]}, "brace that is no placeholder"),
        ({"argv": ["a", "x}"]}, "brace that is no placeholder"),
        ({"argv": ["a", "{0}"]}, "brace that is no placeholder"),
        ({"argv": ["a", "{}"]}, "brace that is no placeholder"),
        ({"argv": ["a", "--x={y...}"]}, "must stand alone"),
        ({"argv": ["a", "{x...}"], "arguments": {"x": "str"}}, "a list stands as {x...}"),
        ({"argv": ["a", "{x}"], "arguments": {"x": "[str]"}}, "a list stands as {x...}"),
        ({"argv": ["a"], "arguments": {"x": "str", "y": "int"}}, "declares x, y, which argv does not use"),
        ({"argv": ["a", "{x}"], "arguments": {"x": "text"}}, "str | int | float | bool | [str] | [int]"),
        ({"argv": ["a", "{x}"], "arguments": {"x": {"type": "str", "defualt": 1}}}, "type, default, description"),
        ({"argv": ["a", "{x}"], "arguments": {"x": {"type": "int", "default": "1"}}}, "arguments.x"),
        ({"argv": ["a", "{x}"], "arguments": {"x": {"type": "int", "choices": ["a"]}}}, "arguments.x"),
        ({"argv": ["a", "{x}"], "arguments": {"x": {"type": "int", "default": 9, "maximum": 5}}}, "arguments.x"),
        ({"argv": ["a", "{x}"], "arguments": {"x": {"type": "str", "minimum": 5}}}, "for int and float"),
        ({"argv": ["a", "{x}"], "arguments": {"x": {"type": "float", "choices": [1]}}}, "for str and int"),
        ({"argv": ["a", "{x}"], "arguments": {"x": {"type": "str", "choices": []}}}, "at least one"),
        ({"argv": ["a", "{x}"], "arguments": ["x"]}, "a table of name = type"),
        ({"argv": ["a", "-{x}"], "arguments": {"x": "int"}}, "a value would choose an option"),
        ({"argv": ["a", "--{x}"], "arguments": {"x": "str"}}, "a value would choose an option"),
        ({"argv": ["a", "--{x}=1"], "arguments": {"x": "str"}}, "a value would choose an option"),
        ({"argv": ["a", "--no-{x}"], "arguments": {"x": "int"}}, "a value would choose an option"),
        ({"argv": ["a", "-v{x}"], "arguments": {"x": "str"}}, "a value would choose an option"),
        ({"argv": ["a"], "kind": "python"}, "no argv template"),
        ({"argv": ["a"], "argz": 1}, "no field of a contract"),
        ({"argv": ["a"], "timeout_ms": 0}, "timeout_ms"),
    ],
)
def test_a_template_that_cannot_be_is_refused_when_it_is_loaded(table: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        template_tool("t", table)
    assert says in str(refused.value)


def test_after_the_separator_dashes_in_the_template_are_no_options() -> None:
    assert _argv(_one("-{x}", "str", "--"), x="v") == ["prog", "--", "-v"]


def test_the_program_is_pinned_to_where_it_was_found(tmp_path: Path) -> None:
    for name, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prog").touch(mode=mode)
    search_path = f"relative:{tmp_path / 'missing'}:{tmp_path / 'first'}:{tmp_path / 'second'}"
    made = template_tool("t", {"argv": ["prog"]}, search_path)
    assert made.call({}, Context(deadline_ns=0, workdir="/w")).argv == [str(tmp_path / "second" / "prog")]
    unfound = template_tool("t", {"argv": ["no-such-prog"]}, search_path)
    assert unfound.call({}, Context(deadline_ns=0, workdir="/w")).argv == ["no-such-prog"]


def test_an_absolute_program_stays_what_it_is() -> None:
    made = template_tool("t", {"argv": ["/bin/true"]}, os.defpath)
    assert made.call({}, Context(deadline_ns=0, workdir="/w")).argv == ["/bin/true"]


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["-", "--", "-x", "", "=", "--y"]
)
_pieces = st.lists(st.sampled_from(["-", "--", "=", "o", "{a}", "{b}", "-o", "--opt="]), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(_pieces.map("".join), max_size=5), _texts, _texts)
def test_no_value_ever_becomes_an_option(elements: list[str], a: str, b: str) -> None:
    """Every element that a program could read as an option has its name from the template alone."""
    used = {name: "str" for name in ("a", "b") if any(f"{{{name}}}" in element for element in elements)}
    try:
        argv = _argv(
            {"argv": ["prog", *elements], "arguments": used}, **{name: {"a": a, "b": b}[name] for name in used}
        )
    except (ValueError, InvalidArguments):
        return
    assert len(argv) == len(elements) + 1
    for element, rendered in zip(elements, argv[1:], strict=True):
        if element == "--":
            break
        if rendered.startswith("-"):
            named = rendered.partition("=")[0]
            assert element == rendered or element.startswith(f"{named}="), (element, rendered)


@settings(deadline=None)
@given(st.text(st.sampled_from("{}ab.")))
def test_parsing_an_element_either_refuses_it_or_accounts_for_all_of_it(text: str) -> None:
    try:
        element = parse_element(text)
    except ValueError:
        return
    said = "".join(
        piece.replace("{", "{{").replace("}", "}}") if isinstance(piece, str)
        else "{" + piece.name + ("...}" if piece.spread else "}")
        for piece in element
    )  # fmt: skip
    assert said == text


@settings(deadline=None)
@given(st.lists(_texts))
def test_a_spread_is_one_element_for_each_value(values: list[str]) -> None:
    assume(not any("\0" in value for value in values))
    template = [("p",), ("--",), (Slot("x", True),)]
    assert render(template, {"x": values}) == ["p", "--", *values]
