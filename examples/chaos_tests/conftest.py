"""What a project needs for chaos tests of its tools: the plugin, and a configuration that serves them."""

from __future__ import annotations

import os

import pytest

pytest_plugins = ["deadlined.testing"]


@pytest.fixture
def deadlined_config() -> str:
    """The tools under test."""
    here = os.path.dirname(__file__)
    return f'[tool.pay]\nkind = "python"\nmodule = "payment"\npath = "{here}"\n'
