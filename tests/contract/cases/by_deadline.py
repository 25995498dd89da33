"""A call that its deadline ends after it has come to a certain point, on a machine of any speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deadlined import Client
from deadlined.client import CallHandle

DEADLINES_MS = (500, 2_000, 8_000, 30_000)


def killed_after(
    point: Path, client: Client, tool: str, arguments: dict[str, Any], again: Sequence[Path] = (), **options: Any
) -> CallHandle:
    """``point``: a file that the call makes when it is there. Nothing follows from a call that was not yet. ``again``:
    other files that must not be there before another try."""
    for deadline_ms in DEADLINES_MS:
        for path in (point, *again):
            path.unlink(missing_ok=True)
        handle = client.submit(tool, arguments, deadline_ms=deadline_ms, **options)
        result = handle.wait()
        assert (result.status, result.reason) in (("killed", "time_budget"), ("not_executed", "time_budget")), (
            result.error
        )
        if point.exists():
            return handle
    raise AssertionError(f"{tool} made no {point} within {DEADLINES_MS[-1]} ms")
