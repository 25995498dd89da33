"""The weakened builds: which file, which text, what stands in its place, which suite must turn red.

A mutant takes away one thing that the product promises. Its old text occurs exactly once in its file, so that a change
of the code that moves it is noticed. Suites are machine tests: they need no processes, and import what they test from
the copy.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """``name``: what is taken away. ``suite``: paths for pytest, below ``tests``."""

    name: str
    file: str
    old: str
    new: str
    suite: str


_RUN = "supervisor/core/run.py"
_RUN_SUITE = "tests/supervisor/core/test_run.py"

MUTANTS = (
    Mutant(
        "a stop does not wait for the calls in flight",
        _RUN,
        "        if not self.in_flight:\n            return self._conclude(given.now_ns)\n        checking",
        "        if True:\n            return self._conclude(given.now_ns)\n        checking",
        _RUN_SUITE,
    ),
    Mutant(
        "a later stop takes the place of the first",
        _RUN,
        "    def _stop_twice(self, given: StopAsked) -> Effects:\n",
        "    def _stop_twice(self, given: StopAsked) -> Effects:\n        self._stop = given\n",
        _RUN_SUITE,
    ),
    Mutant(
        "a run is suspended beside its calls",
        _RUN,
        "return _STAY if self.in_flight else self._suspend(given.now_ns)",
        "return self._suspend(given.now_ns)",
        _RUN_SUITE,
    ),
    Mutant(
        "a resumed run gets its whole time again",
        _RUN,
        "self.deadline_ns = given.now_ns + self._remaining_ns",
        "self.deadline_ns = given.now_ns + self.deadline_ns",
        _RUN_SUITE,
    ),
    Mutant(
        "a finish is done without its checks",
        _RUN,
        "        if self.checks:\n",
        "        if False:\n",
        _RUN_SUITE,
    ),
    Mutant(
        "a finish may be refused for ever",
        _RUN,
        "if self.refusals < self.most_refusals:",
        "if True:",
        _RUN_SUITE,
    ),
    Mutant(
        "a wrap-up outlives the deadline",
        _RUN,
        "self._until_ns = min(now_ns + (self.wrap_up_ns or self.deadline_ns), self.deadline_ns)",
        "self._until_ns = now_ns + (self.wrap_up_ns or self.deadline_ns)",
        _RUN_SUITE,
    ),
)
