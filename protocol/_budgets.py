"""What is said of budgets."""

from __future__ import annotations

import msgspec


class DimensionView(msgspec.Struct):
    """One dimension of a budget as it stands. ``limit`` and ``left`` None: without a limit."""

    limit: int | None
    used: int
    reserved: int
    left: int | None
