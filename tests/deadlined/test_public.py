import subprocess
import sys

import pytest

import deadlined
import protocol
from deadlined.async_runs import AsyncRun
from deadlined.runs import Run


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


def _words(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


def test_both_clients_and_their_runs_have_the_same_words():
    assert _words(deadlined.Client) - {"close"} == _words(deadlined.AsyncClient)
    assert _words(Run) == _words(AsyncRun)
    assert {"run", "open_run", "attach_run"} <= _words(deadlined.Client)
