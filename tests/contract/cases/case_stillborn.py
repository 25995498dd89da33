"""A module of tools whose workers die while they are born, as long as a file is there (its path comes in TZ)."""

from __future__ import annotations

import os

from deadlined import tool


def _die() -> None:
    if os.path.exists(os.environ.get("TZ", "")):
        os.write(2, b"a long story of why this cannot be\n" * 40)
        os._exit(3)


os.register_at_fork(after_in_child=_die)


@tool(fresh=True, approval="never")
def stillborn() -> str:
    """In a worker of its own, if there is one."""
    return "lives"
