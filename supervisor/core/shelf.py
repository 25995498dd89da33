"""Which raw outputs, and work directories, are still kept: the account of them, and who goes when room is short.

Rules
1. The oldest go first: when their time is up, when all together take more than the quota, when there are too many.
2. The newest stays whatever it takes: it is somebody's answer. (One output cannot take more than a call's own limit.)
3. Small files are counted as the block of the disk that each takes.
4. How long a result can be asked for is another matter: a file may outlive its result, and go before it.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol._deadlines import NS_PER_MS

MOST_FILES = 30_000
"""Their account takes about 10 MB of memory then."""
_BLOCK_BYTES = 4_096


class Kept(NamedTuple):
    """A file or directory tree: what it takes, in bytes, and since when it is kept."""

    path: str
    size: int
    since_ns: int


class Shelf:
    """``quota``: bytes; ``ttl_ms``: how long anything is kept at most."""

    def __init__(self, quota: int, ttl_ms: int, most: int = MOST_FILES) -> None:
        self._quota, self._ttl_ns, self._most = quota, ttl_ms * NS_PER_MS, most
        self._kept: dict[str, Kept] = {}
        """Oldest first."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def full(self) -> bool:
        """Whether something has to go at once."""
        return len(self._kept) > 1 and (self.bytes > self._quota or len(self._kept) > self._most)

    def put(self, kept: Kept) -> None:
        """Keep something that is newer than all that is there."""
        self._drop(kept.path)
        counted = kept._replace(size=max(kept.size, _BLOCK_BYTES))
        self._kept[kept.path] = counted
        self.bytes += counted.size

    def weighed(self, path: str, size: int) -> None:
        """What something really takes is known now. Nothing, when it has gone meanwhile."""
        if (kept := self._kept.get(path)) is not None:
            counted = max(size, _BLOCK_BYTES)
            self._kept[path] = kept._replace(size=counted)
            self.bytes += counted - kept.size

    def recall(self, found: list[Kept]) -> None:
        """Take in what an earlier life has left; what is there already is known better."""
        known = list(self._kept.values())
        self._kept.clear()
        self.bytes = 0
        for kept in [*sorted(found, key=lambda kept: kept.since_ns), *known]:
            self.put(kept)

    def due(self, now_ns: int) -> list[str]:
        """What has to go now, oldest first. It is off the books with this answer."""
        gone = []
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if not self.full and oldest.since_ns + self._ttl_ns > now_ns:
                break
            self._drop(oldest.path)
            gone.append(oldest.path)
        return gone

    def _drop(self, path: str) -> None:
        if (kept := self._kept.pop(path, None)) is not None:
            self.bytes -= kept.size
