"""Fixtures for chaos tests of your own tools: ``pytest_plugins = ["deadlined.testing"]`` in the top-level conftest.py.

* `deadlined_daemon`: a private daemon for one test, with the tools of `toolworkers.chaos`, which misbehave on purpose.
  ``kill_worker(call)``, ``with stop_daemon():``, ``kill_daemon()``, ``start_again()``, ``assert_no_survivors()``.
* `deadlined_client`: a client of it.
* `deadlined_config`: override it to serve your tools as well.

`open_chaos_daemon` is the same as a context manager, for fixtures of a wider scope. docs/testing.md shows them at work.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deadlined._chaos_daemon import ChaosDaemon, open_chaos_daemon
from deadlined.client import Client

__all__ = ["ChaosDaemon", "deadlined_client", "deadlined_config", "deadlined_daemon", "open_chaos_daemon"]


@pytest.fixture
def deadlined_config() -> str:
    """TOML to add to the daemon's configuration, such as your ``[tool.NAME]`` tables. By default nothing."""
    return ""


@pytest.fixture
def deadlined_daemon(deadlined_config: str) -> Iterator[ChaosDaemon]:
    """A daemon for this test alone. The test fails when it does not stop cleanly or leaves a process."""
    with open_chaos_daemon(deadlined_config) as daemon:
        yield daemon


@pytest.fixture
def deadlined_client(deadlined_daemon: ChaosDaemon) -> Iterator[Client]:
    """A connection to the daemon's first life."""
    with deadlined_daemon.client() as client:
        yield client
