"""From the raw files of a call to what its result says of them: bytes, paths, digest, and the view.

Everything here blocks and is bounded: two windows of a file are looked at, its line ends counted while it has no more
than 64 MiB (60 ms), and one of up to 1 MiB hashed. What is more than a few KiB wants a thread. (`sealing` hashes the
rest, later.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from protocol._outcomes import OutputInfo, StreamInfo
from supervisor.core.plain_text import is_utf8
from supervisor.core.streams import Seen, view_of_streams
from supervisor.journal.outputs import edges, line_ends, read_range

HASHED_BYTES = 1 << 20
COUNTED_BYTES = 64 << 20
SILENT = OutputInfo(streams={"both": StreamInfo()})
SILENT_APART = OutputInfo(streams={"stdout": StreamInfo(), "stderr": StreamInfo()})
"""Of calls that ran and wrote nothing. Shared: nobody changes an OutputInfo once it stands in a result."""


class Written(NamedTuple):
    """One stream of a call that is over; ``path`` is None when nothing was written."""

    name: str
    size: int
    path: str | None


def output_of(streams: Sequence[Written], truncated: bool) -> OutputInfo:
    """What can be said without looking into the files. ``path`` of the whole is that of the first that has one."""
    if not any(stream.size for stream in streams):
        return SILENT if len(streams) == 1 else SILENT_APART
    return OutputInfo(
        bytes=sum(stream.size for stream in streams),
        truncated=truncated,
        path=next(stream.path for stream in streams if stream.path is not None),
        streams={stream.name: StreamInfo(stream.size, stream.path) for stream in streams},
    )


def look_into(output: OutputInfo) -> None:
    """Add the view, the digest of a small file, and whether all that was looked at is UTF-8. Raises OSError."""
    seen = [_seen(name, info.path) for name, info in output.streams.items() if info.path is not None]
    output.view = view_of_streams(seen)
    output.sha256 = seen[0].digest
    output.invalid_utf8 = not all(is_utf8(stream.head, stream.tail) for stream in seen)


def _seen(name: str, path: str) -> Seen:
    head, tail, size = edges(path)
    digest = None
    if size <= HASHED_BYTES:
        whole = head if not tail else read_range(path, 0, size)
        digest = hashlib.sha256(whole).hexdigest()
    counted = line_ends(path) if tail and size <= COUNTED_BYTES else None
    return Seen(name, head, tail, size, path, digest, counted)
