"""What the tests of the pages about machines share: the scripts that make them, loaded as when they are run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "docs" / "states"


@pytest.fixture(scope="module")
def make(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """``docs/states/make_x.py`` for ``test_make_x.py``."""
    with loaded(request.path.name.removeprefix("test_")) as module:
        yield module


@contextmanager
def loaded(script: str) -> Iterator[ModuleType]:
    """One script, with its folder on the path."""
    spec = importlib.util.spec_from_file_location(f"docs_states_{script}", SCRIPTS / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        spec.loader.exec_module(module)
        yield module
