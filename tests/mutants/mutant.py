"""What a weakened build is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """``name``: what is taken away. ``suite``: paths for pytest, below ``tests``."""

    name: str
    file: str
    old: str
    new: str
    suite: str
