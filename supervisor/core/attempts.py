"""What a run remembers of its calls: the attempts of the window, in order, and a tally for each call. Owns when two
attempts are equivalent; what is done about their number is `detectors`'.

Rules
1. A *call* is a tool with its arguments (``call_fp``). Its *situation* is the call in one state of the world. A tally
   counts the attempts of one call in one situation: a new situation begins it anew.
2. What a call itself has changed makes no new situation for it: writing the same thing again is a repetition. What any
   other call has changed does.
3. ``same`` counts attempts with the same outcome in a row; another outcome begins it anew. ``failures`` counts those
   that failed in a row, whatever they said; a success ends it, and so does another result of a tool whose failures are
   results. ``surcharge``: an attempt that failed by using up its whole deadline counts as two failures.
4. An attempt whose outcome nobody knows (in flight, blocked, lost) is one without information: it counts, and is no
   other outcome.
5. Calls in between change nothing. At most ``MOST_TALLIES`` are kept, those attempted last.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import msgspec

from supervisor.core.nearness import Words, words

MOST_TALLIES = 1_024


class Attempt(msgspec.Struct, array_like=True):
    """One attempt of a call. ``outcome`` None: nobody knows it (yet). ``changes``: how often calls had changed the
    state when it began. ``counted``: a detector warned of it or blocked it, which the breaker counts. ``text``: of its
    arguments, until somebody wants the words of it: of most attempts nobody ever does."""

    number: int
    tool: str
    call_fp: str
    call_id: str
    started_ns: int
    generation: int
    changes: int
    poll: bool = False
    self_judged: bool = False
    failure_is_feedback: bool = False
    counted: bool = False
    outcome: str | None = None
    words: Words = frozenset()
    text: str = ""

    def take_words(self) -> Words:
        """The words of its arguments, in place of the text of them."""
        if self.text:
            self.words, self.text = words(self.text), ""
        return self.words


class Window:
    """The last ``size`` attempts, oldest first, and how many of them are ``counted``."""

    def __init__(self, size: int) -> None:
        self.attempts: deque[Attempt] = deque(maxlen=size)
        self.counted = 0
        self._outcomes: dict[tuple[str, str], int] = {}
        self._alike: dict[str, int] = {}

    def push(self, attempt: Attempt) -> None:
        """The newest attempt; the oldest leaves when there are too many."""
        if len(self.attempts) == self.attempts.maxlen:
            oldest = self.attempts[0]
            self.counted -= oldest.counted
            self._forget(oldest)
        self.attempts.append(attempt)
        self.counted += attempt.counted
        if attempt.outcome is not None:
            self._count(attempt, attempt.outcome)

    def learn(self, attempt: Attempt, outcome: str | None) -> None:
        """The outcome of an attempt, which may have left the window meanwhile."""
        attempt.outcome = outcome
        if outcome is not None and attempt.number >= self.attempts[0].number:
            self._count(attempt, outcome)

    def alike(self, tool: str) -> int:
        """How many attempts of a tool had an outcome that another one had too, beyond the first of each."""
        return self._alike.get(tool, 0)

    def _count(self, attempt: Attempt, outcome: str) -> None:
        place = (attempt.tool, outcome)
        before = self._outcomes.get(place, 0)
        self._outcomes[place] = before + 1
        if before:
            self._alike[attempt.tool] = self._alike.get(attempt.tool, 0) + 1

    def _forget(self, attempt: Attempt) -> None:
        if attempt.outcome is None:
            return
        place = (attempt.tool, attempt.outcome)
        if self._outcomes[place] > 1:
            self._outcomes[place] -= 1
            self._alike[attempt.tool] -= 1
        else:
            del self._outcomes[place]


class Tally(msgspec.Struct, array_like=True):
    """The attempts of one call in one situation. ``moved``: the call has changed the state since ``situation`` was
    seen. ``foreign``: how many changes were not its own. ``call_id``: the last attempt with the outcome."""

    generation: int
    situation: str
    foreign: int
    own: int = 0
    moved: bool = False
    same: int = 0
    failures: int = 0
    surcharge: int = 0
    in_flight: int = 0
    started_ns: int | None = None
    outcome: str | None = None
    call_id: str = ""

    @property
    def prior(self) -> int:
        """Attempts in a row with the same outcome, or with none that is known."""
        return self.same + self.in_flight

    @property
    def failed(self) -> int:
        """Attempts in a row that failed, those in flight and blocked since among them; 0 before the first failure."""
        return self.failures + self.in_flight if self.failures else 0


class Tallies:
    """The tallies of a run, and how often its calls have changed the state."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Tally] = OrderedDict()
        self._generation = 0
        self.changes = 0

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, call_fp: object) -> bool:
        """Whether anything is remembered of a call, in whatever situation. So it is of every attempt in a window, which
        is shorter."""
        return call_fp in self._of

    def find(self, call_fp: str, situation: str) -> Tally | None:
        """The tally that a next attempt belongs to; None, it would be the first."""
        tally = self._of.get(call_fp)
        return tally if tally is not None and self._is_same(tally, situation) else None

    def started_ns(self, call_fp: str) -> int | None:
        """When the call was executed last, in whatever situation."""
        tally = self._of.get(call_fp)
        return None if tally is None else tally.started_ns

    def begin(self, call_fp: str, situation: str, now_ns: int) -> int:
        """An attempt begins: the generation of its tally, for `end`."""
        tally = self._touch(call_fp, situation)
        tally.in_flight += 1
        tally.started_ns = now_ns
        return tally.generation

    def blocked(self, call_fp: str, situation: str) -> int:
        """An attempt that is not executed."""
        tally = self._touch(call_fp, situation)
        tally.same += 1
        tally.failures += bool(tally.failures)
        return tally.generation

    def end(self, attempt: Attempt, failures: int, *, changed: bool) -> None:
        """An attempt has ended. ``failures``: as how many failures it counts, 0 for a success."""
        tally = self._of.get(attempt.call_fp)
        self.changes += changed
        if tally is None or tally.generation != attempt.generation:
            return  # of a situation that is gone
        tally.in_flight -= 1
        tally.own += changed
        tally.moved |= changed
        self._outcome(tally, attempt)
        if failures:
            tally.failures += 1
            tally.surcharge += failures - 1
        else:
            tally.failures = tally.surcharge = 0

    def _outcome(self, tally: Tally, attempt: Attempt) -> None:
        if attempt.outcome is None:
            tally.same += 1
            return
        if tally.outcome is not None and attempt.outcome != tally.outcome:
            tally.same = 0
            if attempt.failure_is_feedback:
                tally.failures = tally.surcharge = 0
        tally.same += 1
        tally.outcome, tally.call_id = attempt.outcome, attempt.call_id

    def _touch(self, call_fp: str, situation: str) -> Tally:
        tally = self._of.get(call_fp)
        if tally is None or not self._is_same(tally, situation):
            started_ns = None if tally is None else tally.started_ns
            self._generation += 1
            tally = Tally(self._generation, situation, self.changes, 0, False, 0, 0, 0, 0, started_ns)
            self._of[call_fp] = tally
            if len(self._of) > MOST_TALLIES:
                self._of.popitem(last=False)
        self._of.move_to_end(call_fp)
        tally.situation, tally.moved = situation, False
        return tally

    def _is_same(self, tally: Tally, situation: str) -> bool:
        return tally.situation == situation or (tally.moved and tally.foreign + tally.own == self.changes)

    def dump(self) -> list[Any]:
        """The state as JSON can carry it."""
        return [self._generation, self.changes, [[fp, msgspec.to_builtins(tally)] for fp, tally in self._of.items()]]

    def load(self, state: list[Any]) -> None:
        """Take over what `dump` gave."""
        self._generation, self.changes, tallies = state
        self._of = OrderedDict((fp, msgspec.convert(tally, Tally)) for fp, tally in tallies)
