from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

from toolworkers._registry import RegistryError
from toolworkers._zygote import load_settings


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """load_settings makes this process a zygote's: environment and search path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "environ", os.environ.copy())


def settings(**config: object) -> object:
    return load_settings(json.dumps({"outer_pidns": 1, **config}))


def test_the_built_in_tools_are_always_there() -> None:
    assert {"shell", "read_file"} <= set(settings().registry.names())


def test_modules_commands_and_overrides_of_the_configuration_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "zygote_test_tools.py").write_text("from toolworkers import tool\n@tool\ndef mine() -> int: return 1\n")
    loaded = settings(
        modules=["zygote_test_tools"],
        path=[str(tmp_path)],
        commands={"listing": {"kind": "command", "argv": ["ls"]}},
        tools={"mine": {"read_only": True}},
    )
    assert {"mine", "listing"} <= set(loaded.registry.names())
    assert loaded.registry.get("mine").contract.read_only


@pytest.mark.parametrize("config", [{"modules": ["no_such_module_at_all"]}, {"tools": {"nobody": {}}}])
def test_tools_that_cannot_be_had_are_named(config: dict[str, object]) -> None:
    with pytest.raises(RegistryError, match=r"nobody|no_such_module_at_all"):
        settings(**config)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"outer_pidns": "x"}', '{"outer_pidns": 1, "unknown": 1}'])
def test_a_configuration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        load_settings(text)


def test_a_zygotes_own_environment_is_the_allow_list() -> None:
    settings(user_env={"PATH": "/bin", "LC_ALL": "C", "SECRET": "s"})
    assert os.environ["PATH"] == "/bin"
    assert os.environ["LC_ALL"] == "C"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert "SECRET" not in os.environ


def test_a_worker_holds_only_what_some_tool_declares(tmp_path: Path) -> None:
    words = "from toolworkers import tool\n@tool(env=('TOKEN',))\ndef declares() -> int: return 1\n"
    (tmp_path / "zygote_test_declares.py").write_text(words)
    user = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TOKEN": "t", "SECRET": "s"}
    loaded = settings(user_env=user, modules=["zygote_test_declares"], path=[str(tmp_path)])
    assert loaded.user_env == {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "TOKEN": "t"}
