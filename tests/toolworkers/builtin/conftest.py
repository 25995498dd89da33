"""Built-in tools called in this process: a registry, a workspace, a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolworkers._context import Context
from toolworkers._registry import Registry, ToolError, builtin_registry, to_content

Call = Callable[..., Any]


@pytest.fixture(scope="session")
def registry() -> Registry:
    return builtin_registry()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The root of the calls; its parent holds what no file tool may reach."""
    place = tmp_path / "workspace"
    place.mkdir()
    (tmp_path / "secret.txt").write_text("nobody may read this\n")
    return place


@pytest.fixture
def context(workspace: Path, tmp_path: Path) -> Context:
    return Context(deadline_ns=0, workdir=tmp_path, root=workspace)


@pytest.fixture
def call(registry: Registry, context: Context) -> Call:
    """``call("read_file", path="a")``: arguments as JSON, content as the daemon would get it."""

    def run(name: str, **arguments: Any) -> Any:
        tool = registry.get(name)
        assert tool is not None
        value = tool.call(tool.decode(json.dumps(arguments)), context)
        return value if tool.contract.kind == "command" else to_content(value)

    return run


@pytest.fixture
def refused(call: Call) -> Callable[..., tuple[str, str]]:
    """As ``call``, for calls that must fail: code and class of the ToolError."""

    def run(name: str, **arguments: Any) -> tuple[str, str]:
        with pytest.raises(ToolError) as error:
            call(name, **arguments)
        return error.value.code, error.value.class_.value

    return run


@pytest.fixture
def tree(workspace: Path) -> Path:
    """A small workspace with one of everything a walk may meet."""
    files = {
        "b.py": "import os\n# TODO b\n",
        "a/one.py": "def one():\n    return 'TODO'\n",
        "a/deep/two.txt": "todo lower\nTODO upper\r\nlast TODO",
        "a.txt": "a TODO that sorts after the directory a\n",
        ".hidden/x.py": "hidden TODO\n",
        ".gitignore": "a/\n",
        "é ñ.py": "Unicode TODO é\n",
        "empty.py": "",
        ".git/config": "TODO never\n",
        "node_modules/m/index.js": "TODO bulk\n",
    }
    for path, text in files.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(text.encode())
    (workspace / "binary.py").write_bytes(b"TODO \0\n")
    (workspace / "latin.py").write_bytes(b"TODO caf\xe9\n")
    (workspace / "link.py").symlink_to("b.py")
    (workspace / "loop").symlink_to(".")
    (workspace / "out").symlink_to("..")
    return workspace
