"""Which of many equal events are told, so that one that comes without end fills no disk. Tells nothing itself.

Rules
1. Of each kind the first ``burst`` of a window are told. The window begins with the first of them.
2. All others of the window are counted. The first of the next window is told with that count; `over` gives the counts
   of kinds that have fallen silent.
3. At most ``kinds`` kinds are kept apart; what is new beyond that counts as one kind (`OTHERS`). So the number told in
   a window is bounded, whatever the kinds are.
"""

from __future__ import annotations

import msgspec

from protocol._deadlines import NS_PER_MS

OTHERS = "others"
"""The kind of whatever is one kind too many."""


class RepeatSettings(msgspec.Struct, frozen=True):
    """``burst``: of a kind in ``window_ms`` milliseconds. ``kinds``: kept apart at a time."""

    burst: int = 20
    window_ms: int = 60_000
    kinds: int = 64


class _Kind(msgspec.Struct):
    """``since_ns``: when its window began. ``told``, ``left_out``: how many in it."""

    since_ns: int
    told: int = 0
    left_out: int = 0


class Repeats:
    """One for a log, or for whatever else somebody could fill from outside."""

    def __init__(self, settings: RepeatSettings | None = None) -> None:
        self._settings = settings or RepeatSettings()
        self._kinds: dict[str, _Kind] = {}

    def on_event(self, kind: str, now_ns: int) -> int | None:
        """Something of ``kind`` has happened: None, it is not to be told; else how many were left out before it."""
        name = kind if kind in self._kinds or len(self._kinds) < self._settings.kinds else OTHERS
        known = self._kinds.setdefault(name, _Kind(now_ns))
        left_out = 0
        if self._is_over(known, now_ns):
            left_out = known.left_out
            self._kinds[name] = known = _Kind(now_ns)
        if known.told >= self._settings.burst:
            known.left_out += 1
            return None
        known.told += 1
        return left_out

    def over(self, now_ns: int) -> dict[str, int]:
        """Forget the kinds whose windows are over; how many of each were left out, where any were."""
        gone = {name: known for name, known in self._kinds.items() if self._is_over(known, now_ns)}
        for name in gone:
            del self._kinds[name]
        return {name: known.left_out for name, known in gone.items() if known.left_out}

    def _is_over(self, known: _Kind, now_ns: int) -> bool:
        return now_ns - known.since_ns >= self._settings.window_ms * NS_PER_MS
