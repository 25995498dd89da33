"""Which fields of a schema a role may stand on, and what is said of others."""

from __future__ import annotations

from typing import Any

import pytest

from protocol._roles import Role, refuse_unfit_roles

TEXT, NUMBER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
SOURCE = {"type": "object", "properties": {"path": TEXT, "size": NUMBER}}
TREE = {
    "type": "object",
    "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file": TEXT,
        "files": {"type": "array", "items": TEXT},
        "pair": {"type": "array", "prefixItems": [TEXT, NUMBER], "items": False},
        "where": {"anyOf": [TEXT, NULL]},
        "tags": {"anyOf": [{"type": "array", "items": NUMBER}, NULL]},
        "source": {"anyOf": [{"$ref": "#/$defs/Source"}, NULL]},
        "sources": {"type": "array", "items": {"$ref": "#/$defs/Source"}},
        "tree": {"$ref": "#/$defs/Tree"},
        "anything": {},
        "mode": {"enum": ["a", "b"]},
        "level": {"enum": [1, 2]},
        "count": NUMBER,
        "lost": {"$ref": "#/$defs/Gone"},
        "several": {"type": ["string", "null"]},
    },
    "$defs": {"Source": SOURCE, "Tree": TREE, "Loop": {"$ref": "#/$defs/Loop"}},
}


@pytest.mark.parametrize(
    ("field", "role"),
    [
        ("file", "path"),
        ("files", "path"),
        ("files", "set"),
        ("pair", "url"),
        ("where", "realpath"),
        ("tags", "set"),
        ("source.path", "path"),
        ("sources.path", "command"),
        ("sources", "set"),
        ("tree.children.children.name", "path"),
        ("anything", "path"),
        ("anything", "set"),
        ("mode", "command"),
        ("several", "path"),
        ("count", "volatile"),
        ("source", "secret"),
        ("lost", "path"),
    ],
)
def test_a_role_may_stand_on_a_field_that_can_have_it(field: str, role: Role) -> None:
    refuse_unfit_roles({field: role}, "t", SCHEMA)


@pytest.mark.parametrize("field", ["fil", "", "file.x", "source.pth", "sources.0", "tree.children.path", "lost.x", "."])
def test_a_role_of_a_field_that_is_not_there_is_refused_with_what_is(field: str) -> None:
    with pytest.raises(
        ValueError, match=rf"roles has '{field}', which is no argument of t; there are: anything, count"
    ):
        refuse_unfit_roles({field: "volatile"}, "t", SCHEMA)


@pytest.mark.parametrize(
    ("field", "role", "allowed"),
    [
        ("count", "path", "a text, or a list of texts"),
        ("tags", "url", "a text, or a list of texts"),
        ("source", "command", "a text, or a list of texts"),
        ("level", "realpath", "a text, or a list of texts"),
        ("file", "set", "a list"),
        ("source", "set", "a list"),
    ],
)
def test_a_role_that_a_field_can_never_have_is_refused(field: str, role: Role, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"roles.{field} = '{role}' is not allowed; allowed: only for {allowed}"):
        refuse_unfit_roles({field: role}, "t", SCHEMA)


def test_a_tool_without_arguments_says_so() -> None:
    with pytest.raises(ValueError, match="there are: none"):
        refuse_unfit_roles({"x": "path"}, "t", {"type": "object"})


def test_a_schema_that_refers_to_itself_only_has_no_fields() -> None:
    with pytest.raises(ValueError, match="no argument"):
        refuse_unfit_roles({"x": "path"}, "t", {"$ref": "#/$defs/Loop", "$defs": SCHEMA["$defs"]})
