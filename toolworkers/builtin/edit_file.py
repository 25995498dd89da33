"""``edit_file``: one text for another in a file, only when it occurs exactly as often as the caller believes."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from toolworkers._context import Context
from toolworkers._tools import ToolError, tool
from toolworkers.builtin._beneath import Place, locate, open_regular, told_by
from toolworkers.builtin._writing import replace_file

FILE_LIMIT = 16 << 20
"""Bytes of a file that can be edited: it is held in memory twice."""


@tool(approval="never", reusable=True, remote=False, roles={"path": "path"})
def edit_file(
    path: str,
    old: Annotated[str, Meta(min_length=1)],
    new: str,
    ctx: Context,
    count: Annotated[int, Meta(ge=1)] = 1,
) -> dict[str, Any]:
    """Replace ``old`` by ``new`` in a file; refused, and nothing changed, unless ``old`` occurs ``count`` times."""
    place = locate(ctx, path)
    with told_by(path):
        data = _whole(place)
        occurs = data.count(old.encode())
        if occurs != count:
            raise ToolError(_say(path, occurs, count), code="occurrence_mismatch", class_="argument")
        edited = data.replace(old.encode(), new.encode())
        replace_file(place, edited)
    return {"path": place.shown, "replaced": occurs, "bytes": len(edited)}


def _whole(place: Place) -> bytes:
    """All bytes: UTF-8 can be searched as bytes, and what is no UTF-8 elsewhere in the file stays as it is."""
    with open_regular(place) as file:
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise ToolError(f"{place.asked!r} is over {FILE_LIMIT} bytes; allowed: smaller files", "too_large", "argument")
    return data


def _say(path: str, occurs: int, count: int) -> str:
    if occurs == 0:
        return f"old does not occur in {path!r}; expected {count}; nothing was changed"
    return (
        f"old occurs {occurs} times in {path!r}, expected {count}; nothing was changed;"
        f" allowed: count = {occurs}, or an old with more of the text around it"
    )
