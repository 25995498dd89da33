"""What of a call's arguments counts, and how each field is spelled."""

from __future__ import annotations

import os
from typing import Any

import pytest

from protocol import Contract, ToolDescription
from supervisor.core.call_form import CallForm, Surroundings

TEXT = {"type": "string"}
AROUND = Surroundings("/w", "/home/u", b"k" * 32)
ENTRY = {"type": "object", "properties": {"path": TEXT, "note": {"type": "string", "default": "none"}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "default": "."},
        "real": {"type": "string", "default": "."},
        "paths": {"type": "array", "items": TEXT},
        "command": TEXT,
        "url": TEXT,
        "tags": {"type": "array", "default": ["a", "b"]},
        "note": {"default": None},
        "token": {"default": "open"},
        "count": {"type": "integer", "default": 10},
        "on": {"type": "boolean", "default": True},
        "entry": {"$ref": "#/$defs/Entry"},
        "entries": {"type": "array", "items": {"$ref": "#/$defs/Entry"}},
    },
    "$defs": {"Entry": ENTRY},
}
ROLES: dict[str, Any] = {
    "path": "path",
    "real": "realpath",
    "paths": "path",
    "command": "command",
    "url": "url",
    "tags": "set",
    "note": "volatile",
    "token": "secret",
    "entry.path": "path",
    "entries.path": "realpath",
}


def form(roles: dict[str, Any] = ROLES, home: str = "user") -> CallForm:
    return CallForm(ToolDescription("t", "", Contract(roles=roles, home=home), SCHEMA))  # type: ignore[arg-type]  # a word


def reduced(around: Surroundings = AROUND, **values: Any) -> bytes:
    return form().reduced(values, around)


SAME = [
    ({}, {"path": "."}),
    ({}, {"path": "/w/"}),
    ({}, {"real": "."}),
    ({}, {"count": 10, "on": True, "tags": ["b", "a", "b"], "token": "open"}),
    ({}, {"count": 10.0}),
    ({}, {"note": "anything"}),
    ({"note": 1}, {"note": {"a": [2]}}),
    ({"path": "a"}, {"path": "./b/../a"}),
    ({"path": "~/a"}, {"path": "/home/u/a"}),
    ({"paths": ["a", "b"]}, {"paths": ["./a", "/w/b"]}),
    ({"command": "ls 'a b'"}, {"command": ' ls  "a b"'}),
    ({"command": "a; b"}, {"command": " a; b\n"}),
    ({"command": ["ls a", "a; b"]}, {"command": ["ls 'a'", "a; b "]}),
    ({"url": "http://A/#x"}, {"url": "http://a:80"}),
    ({"tags": ["x", "y", "x"]}, {"tags": ["y", "x"]}),
    ({"tags": [{"a": 1, "b": 2}, 1]}, {"tags": [1.0, {"b": 2, "a": 1}]}),
    ({"entry": {"path": "a"}}, {"entry": {"path": "./a"}}),
    ({"entries": [{"path": "a"}, {"path": "b"}]}, {"entries": [{"path": "./a"}, {"path": "/w/b"}]}),
]
DIFFERENT = [
    ({}, {"on": 1}),
    ({}, {"on": False}),
    ({}, {"count": None}),
    ({}, {"count": 11}),
    ({}, {"tags": []}),
    ({}, {"token": None}),
    ({}, {"path": None}),
    ({"path": "a"}, {"path": "A"}),
    ({"path": "a"}, {"path": "../a"}),
    ({"paths": ["a", "b"]}, {"paths": ["b", "a"]}),
    ({"command": "ls a b"}, {"command": "ls 'a b'"}),
    ({"command": "echo '$A'"}, {"command": "echo $A"}),
    ({"command": 'echo "$A"'}, {"command": "echo $A"}),
    ({"command": "a ; b"}, {"command": "a ';' b"}),
    ({"command": "a; b"}, {"command": "a;  b"}),
    ({"command": "ls"}, {"command": '["ls"]'}),
    ({"command": "ls"}, {"command": ["ls"]}),
    ({"command": "echo $e\u0301"}, {"command": "echo $\u00e9"}),
    ({"command": "echo $a \u037e b"}, {"command": "echo $a ; b"}),
    ({"url": "http://a/x"}, {"url": "http://a/y"}),
    ({"tags": ["x"]}, {"tags": "x"}),
    ({"token": "a"}, {"token": "b"}),
    ({"entry": {"path": "a"}}, {"entry": {"path": "a", "note": "none"}}),
    ({"entries": [{"path": "a"}, {"path": "b"}]}, {"entries": [{"path": "b"}, {"path": "a"}]}),
]


@pytest.mark.behaviour("M020")
@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_call_however_it_is_written(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert reduced(**one) == reduced(**other)


@pytest.mark.behaviour("M020")
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_calls_stay_apart_however_alike_they_look(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert reduced(**one) != reduced(**other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"path": "a"}, {"path": "./a"}),
        ({"tags": ["x", "y"]}, {"tags": ["y", "x"]}),
        ({"note": 1}, {"note": 2}),
        ({"command": "ls"}, {"command": " ls"}),
    ],
)
def test_without_roles_texts_are_texts_and_lists_are_in_order(one: dict[str, Any], other: dict[str, Any]) -> None:
    plain = form({})
    assert plain.reduced(one, AROUND) != plain.reduced(other, AROUND)


def test_a_plain_value_never_looks_like_one_that_a_role_has_spelled() -> None:
    """Each role and none, over the same text: the field is the same, so only the letters tell them apart."""
    spelled = {
        role: form({"url": role}).reduced({"url": "/w/a"}, AROUND) for role in ("path", "command", "url", "secret")
    }
    spelled["none"] = form({}).reduced({"url": "/w/a"}, AROUND)
    assert spelled.pop("none") == b'{"url":"/w/a"}'
    assert {role: data[7:8] for role, data in spelled.items()} == {
        "path": b"P",
        "command": b"C",
        "url": b"U",
        "secret": b"K",
    }


def test_a_secret_is_in_no_bytes_and_equal_under_one_key_only() -> None:
    first, again = reduced(token="hunter2"), reduced(token="hunter2")
    other = reduced(AROUND._replace(secret_key=b"z" * 32), token="hunter2")
    assert first == again != other
    assert b"hunter2" not in first + other


def test_a_default_that_is_a_secret_is_left_out_like_any_other() -> None:
    assert reduced(token="open") == b"{}"


def test_links_are_followed_where_the_contract_wants_it_and_somebody_has_looked() -> None:
    values = {"real": "a/../link", "path": "link", "entries": [{"path": "~/x"}, {"path": "~bob/x"}, {"path": ""}, 3]}
    assert form().paths_to_resolve(values, AROUND) == {"a/../link": "/w/a/../link", "~/x": "/home/u/x"}
    there = AROUND._replace(real_paths={"a/../link": "/real", "~/x": "/else"})
    told = form().reduced(values, there)
    assert b'"real":P"/real"' in told
    assert b'"path":P"/w/link"' in told
    assert b'"entries":[{"path":P"/else"},{"path":P"~bob/x"},{"path":P""},3]' in told


def test_a_path_that_starts_in_no_known_place_or_is_none_is_not_looked_up() -> None:
    assert form().paths_to_resolve({"real": "link"}, AROUND._replace(cwd="")) == {}
    assert form().paths_to_resolve({"real": "a\0b"}, AROUND) == {}
    assert form({"path": "path"}).paths_to_resolve({"path": "link", "real": "link"}, AROUND) == {}


def test_names_of_files_that_are_no_text_are_compared_all_the_same() -> None:
    one, other = (os.fsdecode(b"/\xff" + last) for last in (b"a", b"b"))
    for around in (AROUND._replace(cwd=one), AROUND._replace(real_paths={"x": one})):
        again = around._replace(cwd=other, real_paths={"x": other})
        assert form().reduced({"path": "p", "real": "x"}, around) != form().reduced({"path": "p", "real": "x"}, again)


def test_a_home_of_the_workers_own_is_not_the_users() -> None:
    private = form(home="private")
    assert private.reduced({"path": "~/a"}, AROUND) != private.reduced({"path": "/home/u/a"}, AROUND)
    assert private.paths_to_resolve({"real": "~/a"}, AROUND) == {}


def test_where_a_call_runs_is_part_of_it_and_so_are_tool_and_contract() -> None:
    def of(name: str = "t", cwd: str = "/w", **contract: Any) -> str:
        tool = CallForm(ToolDescription(name, "", Contract(**contract), SCHEMA))
        return tool.fingerprint({"command": "ls"}, AROUND._replace(cwd=cwd))

    assert of() == of(cwd="/w/./")
    assert len({of(), of(cwd="/v"), of(cwd=""), of("u"), of(read_only=True)}) == 5


def test_the_worst_arguments_cost_no_recursion() -> None:
    deep: Any = "x"
    for _ in range(63):
        deep = [deep]
    for field in ("path", "real", "command", "url", "tags", "entry", "token"):
        assert reduced(**{field: deep})


def test_a_role_of_a_field_that_the_schema_lost_does_nothing() -> None:
    assert form({"gone.x": "path"}).reduced({"path": "a"}, AROUND) == b'{"path":"a"}'
