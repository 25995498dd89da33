"""What importing costs, and that the lazy front names what lies behind it."""

from __future__ import annotations

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

import protocol

HEAVY = ("msgspec", "trio", "anyio", "psutil", "click", "rich", "apsw", "structlog", "jsonschema_rs", "typing", "re")
LIGHT_MODULES = ("_deadlines", "_errors", "_places", "_quantities", "_slots")


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after a statement, above those of a bare one."""
    code = f"import sys; bare = set(sys.modules)\n{statement}\nprint('\\n'.join(set(sys.modules) - bare))"
    command = [sys.executable, "-S", "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split())


@pytest.mark.parametrize("statement", ["import protocol", *(f"import protocol.{name}" for name in LIGHT_MODULES)])
def test_the_light_half_of_the_protocol_loads_nothing_heavy(statement: str) -> None:
    assert not loaded_by(statement) & set(HEAVY)


def test_the_killers_table_loads_two_modules_and_no_more() -> None:
    ours = {name for name in loaded_by("from protocol import _slots") if name.startswith("protocol")}
    assert ours == {"protocol", "protocol._slots", "protocol._deadlines"}


def test_the_public_tool_decorator_loads_neither_trio_nor_anyio() -> None:
    loaded = loaded_by("from deadlined import tool")
    assert "toolworkers" in loaded
    assert not loaded & {"trio", "anyio", "supervisor", "psutil", "click", "rich", "apsw", "structlog", "jsonschema_rs"}


def test_the_whole_protocol_imports_msgspec_and_the_standard_library_only() -> None:
    modules = sorted(path.stem for path in pathlib.Path(protocol.__file__).parent.glob("_*.py"))
    loaded = loaded_by("".join(f"import protocol.{name}\n" for name in modules if name != "__init__"))
    tops = {name.partition(".")[0] for name in loaded}
    tops.discard("typing_extensions")  # msgspec looks for it and does without
    assert tops - set(sys.stdlib_module_names) == {"protocol", "msgspec"}


@pytest.mark.parametrize("name", protocol.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(protocol, name) is getattr(importlib.import_module(f"protocol.{protocol._WHERE[name]}"), name)


def test_a_name_is_kept_after_its_first_use() -> None:
    assert protocol.Status is protocol.Status
    assert "Status" in vars(protocol)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'protocol' has no attribute 'nothing'"):
        protocol.nothing  # noqa: B018  # the access is the test


def test_the_checkers_see_the_names_that_are_public() -> None:
    """The block that only a type checker reads names exactly what the table names."""
    tree = ast.parse(pathlib.Path(protocol.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (alias.asname, (node.module or "").removeprefix("protocol."))
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(protocol._WHERE.items())


@pytest.mark.parametrize("package", ["protocol", "toolworkers", "supervisor"])
def test_the_package_says_whose_it_is(package: str) -> None:
    assert importlib.import_module(package).__owner__ == "deadlined"
