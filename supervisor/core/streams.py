"""One view of one or two streams: of two that were kept apart each is shown under its name, and they share the room.

What one leaves unused is the other's; a stream that wrote nothing is not mentioned, and one alone needs no heading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from supervisor.core.output import LEAST_CAP, VIEW_BYTES, view_of


class Seen(NamedTuple):
    """One stream as far as it was read: see `output.view_of`. At least one byte."""

    name: str
    head: bytes
    tail: bytes
    size: int
    path: str | None
    digest: str | None = None
    line_ends: int | None = None


def view_of_streams(streams: Sequence[Seen], cap: int = VIEW_BYTES) -> str:
    """At most ``cap`` bytes of UTF-8; ``cap`` is at least 1024 for each stream and 64 bytes for its heading."""
    if not streams:
        return ""
    if len(streams) == 1:
        return _view(streams[0], cap)
    room = cap - sum(len(_heading(stream)) + len("\n") for stream in streams)
    share = room // len(streams)
    used = [min(share, len(_view(stream, share).encode())) for stream in streams]
    rest = room - sum(used)
    sections = []
    for stream, own in zip(streams, used, strict=True):
        text = _view(stream, max(LEAST_CAP, own + rest))
        rest -= max(0, len(text.encode()) - own)
        sections.append(_heading(stream) + text + "\n" * (not text.endswith("\n")))
    return "".join(sections)


def _heading(stream: Seen) -> str:
    return f"[{stream.name}]\n"


def _view(stream: Seen, cap: int) -> str:
    return view_of(stream.head, stream.tail, stream.size, stream.path, stream.digest, cap, stream.line_ends)
