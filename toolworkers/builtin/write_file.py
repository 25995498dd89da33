"""``write_file``: a file's whole new text, put in place at once or not at all."""

from __future__ import annotations

from typing import Any

from toolworkers._context import Context
from toolworkers._tools import tool
from toolworkers.builtin._beneath import locate, told_by
from toolworkers.builtin._writing import replace_file


@tool(approval="never", reusable=True, remote=False, roles={"path": "path"})
def write_file(path: str, text: str, ctx: Context) -> dict[str, Any]:
    """Write a text file, replacing what was there atomically. Its directory must exist; its mode stays."""
    place = locate(ctx, path)
    data = text.encode()
    with told_by(path):
        created = replace_file(place, data)
    return {"path": place.shown, "bytes": len(data), "created": created}
