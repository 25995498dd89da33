"""A result without what its contract calls volatile (`protocol._scrub` says how that is written). Pure.

Rules
1. What a ``*`` of a pattern covers becomes ``*``; a field of the content that is named goes.
2. Patterns are tried one after the other on each text: the view of the output, an error's message, every string of the
   content. None ever looks back (possessive), and a run is at most 64 characters.
3. Texts of more than 16 KiB are compared as they are, and so is what is left when 16 KiB of a result's texts have been
   gone through: a contract cannot make a result cost more than that.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from protocol._scrub import content_way

MOST_TEXT = 16 << 10
_LONGEST_RUN = 64


class Scrub(NamedTuple):
    """A contract's ``scrub``, ready: patterns with what they become, and ways into the content."""

    patterns: tuple[tuple[re.Pattern[str], str], ...]
    ways: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=1024)
def scrub_of(entries: tuple[str, ...]) -> Scrub:
    """Compiled once for each contract."""
    ways = tuple(tuple(way) for entry in entries if (way := content_way(entry)) is not None)
    return Scrub(tuple(_pattern(entry) for entry in entries if content_way(entry) is None), ways)


def _pattern(entry: str) -> tuple[re.Pattern[str], str]:
    entry = re.sub(r"\*+", "*", entry)
    source = ""
    for at, character in enumerate(entry):
        stop = entry[at + 1 : at + 2]
        run = rf"[^\s{re.escape(stop)}]" if stop else r"\S"
        source += f"{run}{{0,{_LONGEST_RUN}}}+" if character == "*" else re.escape(character)
    return re.compile(source), entry.replace("\\", r"\\")


class Scrubber:
    """One result's. Counts what it has gone through (rule 3)."""

    def __init__(self, scrub: Scrub) -> None:
        self._scrub, self._left = scrub, MOST_TEXT

    @property
    def has_patterns(self) -> bool:
        """Whether there is anything to be covered in a text."""
        return bool(self._scrub.patterns)

    def text(self, text: str) -> str:
        """A text with its volatile parts covered."""
        if not self._scrub.patterns or len(text) > self._left:
            return text
        self._left -= len(text)
        for pattern, covered in self._scrub.patterns:
            text = pattern.sub(covered, text)
        return text

    def content(self, content: Any) -> Any:
        """A JSON value likewise; the value itself stays as it is."""
        for way in self._scrub.ways:
            content = _without(content, way)
        return self._texts(content) if self._scrub.patterns else content

    def _texts(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._texts(item) for item in value]
        return {key: self._texts(item) for key, item in value.items()} if isinstance(value, dict) else value


def _without(value: Any, way: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_without(item, way) for item in value]
    if not isinstance(value, dict) or way[0] not in value:
        return value
    kept = {key: item for key, item in value.items() if key != way[0]}
    return kept if len(way) == 1 else {**kept, way[0]: _without(value[way[0]], way[1:])}
