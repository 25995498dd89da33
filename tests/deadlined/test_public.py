import subprocess
import sys

import pytest

import deadlined
import protocol


def _loaded_by(statement, *modules):
    code = f"import sys; {statement}; print(sorted(set({modules!r}) & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_tool_loads_neither_trio_nor_anyio():
    assert _loaded_by("from deadlined import tool", "trio", "anyio", "click", "rich", "supervisor") == "[]"


def test_the_blocking_client_loads_no_event_loop():
    assert _loaded_by("from deadlined import Client", "trio", "anyio", "asyncio", "supervisor") == "[]"


@pytest.mark.parametrize("package", [deadlined, protocol], ids=lambda package: package.__name__)
def test_every_public_name_is_there(package):
    assert [name for name in package.__all__ if getattr(package, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


def test_runs_come_later():
    assert not hasattr(deadlined.Client, "run")
