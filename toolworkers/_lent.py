"""The daemon's environment as a zygote gets it: names, and a memory file from which each value is read when it is asked
for. What no tool declares is never read, and so is in the memory of no worker, which runs strangers' code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping


class LentEnvironment(Mapping[str, str]):
    """``places``: offset and length of each value in the file."""

    def __init__(self, descriptor: int, places: Mapping[str, tuple[int, int]]) -> None:
        self._descriptor, self._places = descriptor, places

    def __getitem__(self, name: str) -> str:
        offset, length = self._places[name]
        return os.pread(self._descriptor, length, offset).decode()

    def __contains__(self, name: object) -> bool:
        return name in self._places  # the mixin's own would read the value

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def close(self) -> None:
        """Give the file up: nothing more can be read, by nobody who is forked from here."""
        os.close(self._descriptor)
