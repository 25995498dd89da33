"""Whether the next call of a run turns in circles. Every transition is in this file; what is counted belongs to
`attempts` (repetitions), `cycles`, `error_streaks`, `nearness` and `novelty`, the numbers to `detector_sets`, the
sentences to `detector_texts`.

Rules
1. `before` only looks, and at *prior* attempts: the call it is asked about is not one of them. Whatever it says,
   nothing is counted until `begin` (it is executed) or `blocked` (it is not). A logical call that is retried begins and
   ends once.
2. The same call is judged by two detectors: by repeat_error while all it does is fail, by repeat_call while its outcome
   is the same. A call whose tool declares ``refresh`` is a *poll*, and judged by poll_no_progress in their place; its
   ``max`` blocks what no level has blocked before.
3. A poll sooner than ``min_interval_ms`` after the same poll was started is ``too_early``: not executed, and counted by
   nothing but no_progress.
4. A tool with ``progress = "self"`` is judged by the fingerprint it gives: that is its outcome, and all that can be
   new. Of any other, new are: the outcome of a successful call, what it left as artefacts, a test result, evidence, and
   an error's code and place where failures are results.
5. The breaker counts the attempts of the window that were warned of or blocked, whatever by, and fires on one that is
   another. Polls are not its: they have higher levels of their own, which it would hide.
6. Refused calls (unknown tool, invalid arguments) are counted while no good one comes between.
7. Several fire: the highest level wins, then the order of `_ORDER`. A set that observes lets everything pass, and tells
   what would have fired.
8. What `begin` is told may be counted later (`catch_up`), and is before anything else is asked or told: who is about to
   send the call need not wait for it.
9. The machine is total: an end of an attempt that is not known means nothing. Memory is bounded, whatever comes.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal, TypeAlias

import msgspec

from protocol._contracts import Refresh
from protocol._deadlines import NS_PER_MS
from protocol._outcomes import Notice
from protocol._runs import FiredDetector
from supervisor.core import detector_texts as texts
from supervisor.core.attempts import Attempt, Tallies, Tally, Window
from supervisor.core.cycles import laps_before
from supervisor.core.detector_sets import DEFAULT, Settings, refuse_contradictions
from supervisor.core.error_streaks import ErrorStreaks
from supervisor.core.nearness import MOST_CHARACTERS, is_near, words
from supervisor.core.novelty import Novelty

Level: TypeAlias = Literal["pass", "warn", "too_early", "block", "stop"]
Refused: TypeAlias = Literal["unknown_tool", "invalid_arguments"]

_RANK = {"pass": 0, "warn": 1, "too_early": 2, "block": 3, "stop": 4}
_ORDER = (
    "breaker unknown_tool invalid_arguments repeat_error same_error ping_pong cycle repeat_call poll_no_progress"
    " near_duplicate no_progress"
).split()
_PLACE = {name: place for place, name in enumerate(_ORDER)}
_SHOWN = 16


class Ask(msgspec.Struct):
    """A valid call that is about to be made. ``text``: of its arguments, empty where rewording is no matter (only
    read-only tools are looked at). ``progress``, ``refresh``, ``failure_is_feedback``: its contract's.
    """

    tool: str
    call_fp: str
    situation_fp: str
    now_ns: int
    read_only: bool = False
    text: str = ""
    refresh: Refresh | None = None
    progress: Literal["self"] | None = None
    failure_is_feedback: bool = False


class Outcome(msgspec.Struct):
    """How a call ended, all its attempts folded into one. ``unknown``: nobody knows what it did (delivery unknown).

    ``feedback``: its error is an ordinary result. ``error_place``: where in what it ran (a file and line, a test), as
    far as that can be told. ``own_fingerprint``: made by the tool, "" = it saw no progress. ``changed_state``: it
    succeeded and may have changed something, so that the run's state version rises.
    """

    ok: bool
    outcome_fp: str = ""
    unknown: bool = False
    killed_at_deadline: bool = False
    error_code: str = ""
    error_place: str = ""
    feedback: bool = False
    own_fingerprint: str = ""
    artefacts: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    test_digest: str = ""
    changed_state: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """What holds for a call, or for a step. ``fired``: all detectors that did, the winner first; where a set observes,
    those that would have, and everything else is as of a pass.

    ``attempt``: which this is, counted from 1. ``count``: prior equivalent attempts, as the winner counts them.
    ``prior``: those of the same call, whoever won. ``earlier``: the call to refer to, "" = none. ``wait_ms``: of
    ``too_early``, until it would not be. ``settles``: the run ends with it, or (``action``) waits for a person.
    ``notices``: what stands beside the result of a call that is warned of.
    """

    level: Level = "pass"
    detector: str = ""
    count: int = 0
    attempt: int = 1
    text: str = ""
    earlier: str = ""
    wait_ms: int = 0
    settles: bool = False
    action: Literal["stop", "ask"] = "stop"
    prior: int = 0
    fired: tuple[FiredDetector, ...] = ()
    notices: tuple[Notice, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the breaker counts the attempt."""
        return any(one.level != "too_early" and one.detector != "poll_no_progress" for one in self.fired)


_PASS = Verdict()
_Found: TypeAlias = tuple[FiredDetector, int]
"""What fired, and the number of the attempt."""


class Detectors:
    """The machine of one run."""

    def __init__(self, settings: Settings = DEFAULT) -> None:
        """Raises ValueError as `refuse_contradictions`."""
        refuse_contradictions(settings)
        self.settings = settings
        self._window = Window(settings.window)
        self._tallies = Tallies()
        self._streaks = ErrorStreaks()
        self._novelty = Novelty()
        self._open: dict[int, Attempt] = {}
        self._begun: list[tuple[int, Ask, str, Verdict | None]] = []
        """Not counted yet (rule 8)."""
        self._number = 0
        self._refused: dict[str, int] = {"unknown_tool": 0, "invalid_arguments": 0}

    # ------------------------------------------------------------ a call

    def before(self, ask: Ask) -> Verdict:
        """What holds for this call now. Changes nothing."""
        self.catch_up()
        tally, wait_ms = None, 0
        found: list[_Found] = []
        if ask.call_fp in self._tallies:  # else it is new: it repeats nothing, and is in no lap
            tally = self._tallies.find(ask.call_fp, ask.situation_fp)
            wait_ms = self._again(ask, tally, found)
        self._same_error(ask, found)
        if ask.text and ask.read_only and ask.refresh is None:
            self._near_duplicate(ask, found)
        if found:
            self._breaker(found)
        prior = 0 if tally is None else tally.prior
        if found:
            return self._verdict(found, prior, wait_ms)
        return Verdict(prior=prior, attempt=prior + 1) if prior else _PASS

    def begin(self, ask: Ask, call_id: str, verdict: Verdict | None = None) -> int:
        """The call is executed now (``ask.now_ns``). ``verdict``: that of `before`, None where it was not asked (a call
        that was approved). Returns the token for `end`."""
        self._number += 1
        self._begun.append((self._number, ask, call_id, verdict))
        return self._number

    def catch_up(self) -> None:
        """Count what has begun; see rule 8."""
        while self._begun:
            number, ask, call_id, verdict = self._begun.pop(0)
            generation = self._tallies.begin(ask.call_fp, ask.situation_fp, ask.now_ns)
            attempt = self._open[number] = self._attempt(number, ask, call_id, generation, verdict)
            self._refused["unknown_tool"] = self._refused["invalid_arguments"] = 0
            self._novelty.did(poll=attempt.poll)

    def blocked(self, ask: Ask, verdict: Verdict) -> None:
        """The call is not executed, because of this verdict of `before`."""
        self.catch_up()
        if verdict.level == "too_early":
            return
        generation = self._tallies.blocked(ask.call_fp, ask.situation_fp)
        self._number += 1
        attempt = self._attempt(self._number, ask, "", generation, verdict)
        self._novelty.did(poll=attempt.poll)

    def end(self, token: int, outcome: Outcome) -> bool:
        """The attempt of this token has ended. Returns whether it brought something that this run had never seen."""
        self.catch_up()
        attempt = self._open.pop(token, None)
        if attempt is None:
            return False
        self._window.learn(attempt, _outcome_key(attempt, outcome))
        changed = outcome.ok and outcome.changed_state
        self._tallies.end(attempt, _failures(outcome), changed=changed)
        if not attempt.failure_is_feedback:
            code = None if outcome.ok else outcome.error_code
            self._streaks.end(attempt.tool, attempt.call_fp, attempt.call_id, code, self._tallies.changes)
        return self._is_new(attempt, outcome)

    def refused(self, kind: Refused) -> Verdict:
        """A call that cannot be made, whose refusal says what can. Counts it; the verdict is a pass or a stop."""
        self.catch_up()
        count = self._refused[kind]
        self._refused[kind] += 1
        self._novelty.did(poll=False)
        level = getattr(self.settings, kind).at(count)
        if level is None:
            return Verdict(prior=count, attempt=count + 1)
        fired = FiredDetector(kind, level, count, texts.refused(kind, count))
        return self._verdict([(fired, count + 1)], count)

    # ------------------------------------------------------------ a step, and evidence

    def evidence(self, evidence_id: str) -> bool:
        """A validator has accepted this piece of evidence. Returns whether it is new."""
        self.catch_up()
        return self._novelty.see("v", evidence_id)

    def step_over(self) -> Verdict:
        """A step has ended: a pass, or no_progress. Where a person is asked, the row of steps begins anew."""
        self.catch_up()
        row = self._novelty.step_over()
        level = self.settings.no_progress.at(row)
        if level is None:
            return Verdict(prior=row) if row else _PASS
        action = self.settings.no_progress_action
        if action == "ask" and not self.settings.observe:
            self._novelty.row = 0
        fired = FiredDetector("no_progress", level, row, texts.no_progress(row, action))
        return self._verdict([(fired, row)], row, action=action)

    # ------------------------------------------------------------ across a suspension

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON can carry it; equal states give equal dumps."""
        self.catch_up()
        ring = {attempt.number: attempt for attempt in self._window.attempts}
        attempts = list((ring | self._open).values())
        for attempt in attempts:
            attempt.take_words()
        plain = msgspec.to_builtins(attempts, order="deterministic")
        return {
            "number": self._number,
            "attempts": plain,
            "window": list(ring),
            "open": list(self._open),
            "tallies": self._tallies.dump(),
            "streaks": self._streaks.dump(),
            "novelty": self._novelty.dump(),
            "refused": dict(self._refused),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `dump` gave, of a machine with the same settings."""
        self._begun.clear()
        known = {attempt.number: attempt for attempt in msgspec.convert(state["attempts"], list[Attempt])}
        self._number = state["number"]
        self._window = Window(self.settings.window)
        for number in state["window"]:
            self._window.push(known[number])
        self._open = {number: known[number] for number in state["open"]}
        self._tallies.load(state["tallies"])
        self._streaks.load(state["streaks"])
        self._novelty.load(state["novelty"])
        self._refused = dict(state["refused"])

    # ------------------------------------------------------------ the detectors

    def _again(self, ask: Ask, tally: Tally | None, found: list[_Found]) -> int:
        """What there is to say of a call that has been made before; how many milliseconds it comes too early."""
        wait_ms = 0 if ask.refresh is None else self._wait_ms(ask, ask.refresh)
        if wait_ms:
            found.append(self._too_early(ask, tally, wait_ms))
        if tally is not None:
            self._repetitions(ask, tally, found)
        self._cycle(ask, found)
        return wait_ms

    def _repetitions(self, ask: Ask, tally: Tally, found: list[_Found]) -> None:
        if ask.refresh is not None:
            level = self.settings.poll_no_progress.at(tally.prior)
            if level in (None, "warn") and ask.refresh.max is not None and tally.prior > ask.refresh.max:
                level = "block"
            if level is not None:
                text = texts.poll(level, ask.tool, tally.prior + 1, tally.call_id)
                found.append(_found("poll_no_progress", level, tally.prior, text, ask.call_fp, tally.call_id))
            return
        level = self.settings.repeat_call.at(tally.prior)
        if level is not None:
            text = texts.repeat_call(level, ask.tool, tally.prior + 1, tally.call_id)
            found.append(_found("repeat_call", level, tally.prior, text, ask.call_fp, tally.call_id))
        failed = tally.failed
        level = self.settings.repeat_error.at(failed + tally.surcharge) if failed else None
        if level is not None:
            text = texts.repeat_error(level, ask.tool, failed + 1, tally.call_id)
            count = failed + tally.surcharge
            found.append(_found("repeat_error", level, count, text, ask.call_fp, tally.call_id, failed + 1))

    def _wait_ms(self, ask: Ask, refresh: Refresh) -> int:
        started_ns = self._tallies.started_ns(ask.call_fp)
        if started_ns is None:
            return 0
        left_ns = started_ns + refresh.min_interval_ms * NS_PER_MS - ask.now_ns
        return max(0, -(-left_ns // NS_PER_MS))

    def _too_early(self, ask: Ask, tally: Tally | None, wait_ms: int) -> _Found:
        call_id, prior = ("", 0) if tally is None else (tally.call_id, tally.prior)
        text = texts.too_early(ask.tool, wait_ms, call_id)
        return _found("poll_no_progress", "too_early", prior, text, ask.call_fp, call_id)

    def _cycle(self, ask: Ask, found: list[_Found]) -> None:
        attempts = self._window.attempts
        period, laps = laps_before(attempts, ask.call_fp)
        level = self.settings.cycle.at(laps) if laps else None
        if level is None:
            return
        lap = [attempts[place - period] for place in range(period)]
        text = texts.cycle(level, [one.tool for one in lap], laps)
        name = "ping_pong" if period == 2 else "cycle"
        found.append(_found(name, level, laps, text, ask.call_fp, lap[0].call_id))

    def _same_error(self, ask: Ask, found: list[_Found]) -> None:
        count, streak = self._streaks.before(ask.tool, ask.call_fp, self._tallies.changes)
        level = self.settings.same_error.at(count) if streak is not None else None
        if streak is not None and level is not None:
            text = texts.same_error(level, ask.tool, count, streak.code, streak.call_id)
            found.append(_found("same_error", level, count, text, None, streak.call_id))

    def _near_duplicate(self, ask: Ask, found: list[_Found]) -> None:
        least = self.settings.near_duplicate.warn_after
        if least is None or self._window.alike(ask.tool) < least - 1:
            return  # of nearly all calls: no words need be compared
        count, latest = _near(self._window.attempts, ask, self._tallies.changes)
        level = self.settings.near_duplicate.at(count)
        if level is not None:
            text = texts.near_duplicate(ask.tool, count, latest)
            found.append(_found("near_duplicate", level, count, text, ask.call_fp, latest))

    def _breaker(self, found: list[_Found]) -> None:
        if all(one.level == "too_early" or one.detector == "poll_no_progress" for one, _ in found):
            return
        counted = self._window.counted
        level = self.settings.breaker.at(counted)
        if level is not None:
            found.append(_found("breaker", level, counted, texts.breaker(counted, self.settings.window), None, ""))

    # ------------------------------------------------------------ the parts

    def _verdict(
        self, found: list[_Found], prior: int, wait_ms: int = 0, action: Literal["stop", "ask"] = "stop"
    ) -> Verdict:
        found.sort(key=lambda one: (-_RANK[one[0].level], _PLACE[one[0].detector]))
        fired = tuple(one for one, _ in found)
        winner, attempt = found[0]
        if self.settings.observe:
            return Verdict(prior=prior, attempt=prior + 1, fired=fired)
        level: Level = msgspec.convert(winner.level, Level)
        return Verdict(
            level,
            winner.detector,
            winner.count,
            attempt,
            winner.text,
            winner.call or "",
            wait_ms if level == "too_early" else 0,
            level == "stop" or (level == "block" and self.settings.block_settles),
            action,
            prior,
            fired,
            tuple(Notice(one.detector, one.level, one.text, number) for one, number in found)
            if level == "warn"
            else (),
        )

    def _attempt(self, number: int, ask: Ask, call_id: str, generation: int, verdict: Verdict | None) -> Attempt:
        attempt = Attempt(
            number,
            ask.tool,
            ask.call_fp,
            call_id,
            ask.now_ns,
            generation,
            self._tallies.changes,
            ask.refresh is not None,
            ask.progress == "self",
            ask.failure_is_feedback,
            verdict is not None and bool(verdict.fired) and verdict.counts,
            None,
            frozenset(),
            ask.text if len(ask.text) <= MOST_CHARACTERS else "",  # a longer one has no words
        )
        self._window.push(attempt)
        return attempt

    def _is_new(self, attempt: Attempt, outcome: Outcome) -> bool:
        see = self._novelty.see
        if attempt.self_judged:
            return bool(outcome.own_fingerprint) and see("f", f"{attempt.tool}\0{outcome.own_fingerprint}")
        new = False
        for one in outcome.artefacts:
            new |= see("a", one)
        for one in outcome.evidence:
            new |= see("v", one)
        if outcome.ok and attempt.outcome is not None:
            new |= see("o", attempt.outcome)
        if outcome.test_digest:
            new |= see("t", outcome.test_digest)
        if outcome.feedback and not outcome.ok and outcome.error_code:
            new |= see("e", f"{outcome.error_code}\0{outcome.error_place}")
        return new


def _found(
    detector: str, level: str, count: int, text: str, key: str | None, call_id: str, attempt: int | None = None
) -> _Found:
    fired = FiredDetector(detector, level, count, text, key and key[:_SHOWN], call_id or None)
    return fired, count + 1 if attempt is None else attempt


def _outcome_key(attempt: Attempt, outcome: Outcome) -> str | None:
    """What makes two outcomes the same; None: nothing is known of this one."""
    if outcome.unknown:
        return None
    if attempt.self_judged:
        return f"={outcome.own_fingerprint}"
    return outcome.outcome_fp or None


def _failures(outcome: Outcome) -> int:
    if outcome.ok:
        return 0
    return 2 if outcome.killed_at_deadline else 1


def _near(attempts: deque[Attempt], ask: Ask, changes: int) -> tuple[int, str]:
    """How many earlier attempts asked nearly the same, with one outcome; and the latest of them."""
    count, latest, outcome = 0, "", None
    asked = words(ask.text)
    for one in reversed(attempts):
        if one.changes != changes:
            break
        if (
            one.tool != ask.tool
            or one.outcome is None
            or one.call_fp == ask.call_fp
            or not is_near(one.take_words(), asked)
        ):
            continue
        if outcome is not None and one.outcome != outcome:
            break
        count, latest, outcome = count + 1, latest or one.call_id, one.outcome
    return count, latest
