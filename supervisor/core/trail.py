"""Which call this is, and what was tried before: a line of the host's over each result that a model reads. Pure.

A model has no count of its own turns, and after a trim not even its calls. It is told facts only: numbers, its own
arguments, how they ended.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from protocol._outcomes import CallResult

_TRIED, _SHOWN = 5, 80


class Trail:
    """The calls of one run, as far as they are remembered."""

    __slots__ = ("_calls", "_of_tool", "_tried")

    def __init__(self) -> None:
        self._calls = 0
        self._of_tool: Counter[str] = Counter()
        self._tried: dict[str, deque[str]] = {}

    def line(self, tool: str, arguments: str, result: CallResult) -> str:
        """What stands over a result; the call belongs to the trail from then on."""
        self._calls += 1
        self._of_tool[tool] += 1
        tried = self._tried.setdefault(tool, deque(maxlen=_TRIED))
        said = f"[host: call {self._calls} of this run, call {self._of_tool[tool]} of {_short(tool)}]"
        if tried:
            said += f"\n[tried before: {'; '.join(tried)}. An equivalent call will say the same]"
        tried.append(f"{_short(arguments)} → {result.status}")
        return said

    def dump(self) -> dict[str, Any]:
        """As plain values."""
        return {"calls": self._calls, "of": dict(self._of_tool), "tried": {k: list(v) for k, v in self._tried.items()}}

    def load(self, kept: dict[str, Any]) -> None:
        """What `dump` gave."""
        self._calls, self._of_tool = kept["calls"], Counter(kept["of"])
        self._tried = {tool: deque(lines, maxlen=_TRIED) for tool, lines in kept["tried"].items()}


def _short(text: str) -> str:
    plain = "".join(one if one.isprintable() else " " for one in text)
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…"
