"""A run without a daemon: calls are put to the detectors as the daemon puts them, and what was said is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from protocol._contracts import Refresh
from protocol._deadlines import NS_PER_MS
from supervisor.core.detector_sets import DEFAULT, SETS, Levels, Settings
from supervisor.core.detectors import Ask, Detectors, Outcome, Verdict

Answer = Callable[[int], Outcome]
"""The outcome of an executed call, by how many the run had executed before it."""

OFF = Levels()
STRICT = SETS["strict"]
POLL = Refresh()
REFUSED = ("block", "stop", "too_early")


def reading(call: str, tool: str = "search", state: int = 0, **more) -> Ask:
    """A read-only call; ``call`` stands for its arguments, ``state`` for the state version."""
    said = {"call_fp": f"{tool}({call})", "situation_fp": f"{tool}({call})@{state}", "read_only": True} | more
    return Ask(tool, said.pop("call_fp"), said.pop("situation_fp"), said.pop("now_ns", 0), **said)


def writing(call: str, tool: str = "write_file", state: int = 0, **more) -> Ask:
    return reading(call, tool, state, read_only=False, **more)


def worded(text: str, tool: str = "search", **more) -> Ask:
    return reading(text, tool, text=text, **more)


def polling(call: str = "build 7", now_ms: int = 0, refresh: Refresh = POLL) -> Ask:
    return reading(call, "build_state", now_ns=now_ms * NS_PER_MS, refresh=refresh)


def ok(content: object = "x", **more) -> Outcome:
    return Outcome(True, f"ok:{content}", **more)


def wrote(content: object = "done", **more) -> Outcome:
    return ok(content, changed_state=True, **more)


def failed(content: object = "x", code: str = "raised", **more) -> Outcome:
    return Outcome(False, f"error:{code}:{content}", error_code=code, **more)


def hung() -> Outcome:
    return Outcome(False, "killed", unknown=True, killed_at_deadline=True, error_code="deadline")


def lost() -> Outcome:
    return Outcome(False, "crashed", unknown=True, error_code="worker_lost")


class Run:
    """``said``: (number of the call, level, detector) of every verdict that was no pass. ``stopped``: the verdict that
    ended it. ``executed``: how many calls were."""

    def __init__(self, settings: Settings = DEFAULT, **changes) -> None:
        self.settings = msgspec.structs.replace(settings, **changes)
        self.detectors = Detectors(self.settings)
        self.said: list[tuple[int, str, str]] = []
        self.stopped: Verdict | None = None
        self.number = 0
        self.executed = 0

    def call(self, ask: Ask, outcome: Outcome | None = None) -> Verdict:
        """One call, which ends with ``outcome`` if it is executed."""
        self.number += 1
        verdict = self.detectors.before(ask)
        self._note(verdict)
        if verdict.level in REFUSED:
            self.detectors.blocked(ask, verdict)
        else:
            self.detectors.end(self.detectors.begin(ask, f"c_{self.number}", verdict), outcome or ok())
            self.executed += 1
        return verdict

    def play(self, calls: Iterable[tuple[Ask, Outcome]], *, steps: bool = False) -> Run:
        """The calls one after the other until the run is stopped; ``steps``: each in a step of its own."""
        for ask, outcome in calls:
            self.call(ask, outcome)
            if steps and self.stopped is None:
                self.step_over()
            if self.stopped is not None:
                break
        return self

    def step_over(self) -> Verdict:
        verdict = self.detectors.step_over()
        self._note(verdict)
        return verdict

    def refused(self, kind) -> Verdict:
        self.number += 1
        verdict = self.detectors.refused(kind)
        self._note(verdict)
        return verdict

    def firsts(self) -> list[tuple[int, str, str]]:
        """What was said, each level of a detector once."""
        seen: dict[tuple[str, str], int] = {}
        for number, level, detector in self.said:
            seen.setdefault((level, detector), number)
        return sorted((number, level, detector) for (level, detector), number in seen.items())

    def _note(self, verdict: Verdict) -> None:
        if verdict.level != "pass":
            self.said.append((self.number, verdict.level, verdict.detector))
        if verdict.settles and self.stopped is None:
            self.stopped = verdict


def again(ask: Ask, outcome: Outcome, times: int) -> list[tuple[Ask, Outcome]]:
    return [(ask, outcome)] * times


def around(times: int, *calls: tuple[Ask, Outcome]) -> list[tuple[Ask, Outcome]]:
    return list(calls) * times
