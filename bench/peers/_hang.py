"""The work that peers are given. Importable by any worker: small, and the same for all."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from bench import tools

KINDS = {"sleep": 1, "c_loop": 1, "deaf": 1, "family": 4}
"""Kind of hang → processes that report themselves to the oracle."""


def noop() -> bool:
    """Do nothing."""
    return True


def hang(kind: str, report: str) -> None:
    """Report to the oracle at ``report``, and do not end within its lifetime."""
    context: Any = SimpleNamespace(deadline_ns=0)
    getattr(tools, kind)(report, context)


def words(kind: str, report: str) -> list[str]:
    """The same as a command."""
    return [sys.executable, "-m", "bench.peers._hang", kind, report]


if __name__ == "__main__":
    hang(*sys.argv[1:])
