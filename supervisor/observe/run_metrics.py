"""What is counted of runs: how many calls, steps, seconds and tokens each came to, why it ended, what was left of its
budget, how often a person was needed. A machine.

Rules
1. A run counts when it has settled. Shares are of the runs that have settled since the log begins.
2. It has reached its step limit when it used all of it, whether that ended it or not.
3. It was abandoned when its client went away from it, or when nobody answered what it waited for.
4. A person was needed for each approval that was asked, and each time that a run was suspended for anything else.
5. A word that is not one of ours, and a tool's name in a budget, is no label.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from protocol._budgets import Dimension
from protocol._events import Event, EventKind
from protocol._runs import RunReason, RunStatus
from supervisor.observe.families import OTHER, Counter, Family, Gauge, Histogram

_COUNTS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
_SECONDS = (1, 5, 15, 60, 120, 300, 480, 900, 1_800, 3_600)
_TOKENS = (1_000, 5_000, 15_000, 50_000, 100_000, 300_000, 600_000, 1_000_000, 3_000_000)
_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_STATUSES, _REASONS = frozenset(RunStatus), frozenset(RunReason)
_DIMENSIONS = frozenset(Dimension)
_PER_TOOL = "tool_calls[]"
_DETECTORS = frozenset((*RunReason, "near_duplicate", "duplicate_delivery"))
_LEVELS = frozenset(("warn", "block", "stop", "too_early"))
_DECISIONS = frozenset(("approve", "reject", "expired", "void"))
_ABANDONED = {RunReason.DISCONNECT: "disconnect", RunReason.APPROVAL_EXPIRED: "expired"}
_NEEDED = {RunReason.RECONCILE_REQUIRED: "reconcile"}


class RunMetrics:
    """Counts as events come in."""

    def __init__(self) -> None:
        self._most_calls = 0
        self._opened = Counter("deadlined_runs_opened_total", "Runs that were admitted.")
        self._settled = Counter("deadlined_runs_settled_total", "Runs that have settled.", ("status", "reason"))
        self._calls = Histogram("deadlined_run_tool_calls", "Tool calls of a run.", _COUNTS)
        self._steps = Histogram("deadlined_run_steps", "Steps of a run.", _COUNTS)
        self._seconds = Histogram(
            "deadlined_run_seconds", "How long a run went on, waiting for people left out.", _SECONDS
        )
        self._tokens = Histogram("deadlined_run_tokens", "Tokens of a run.", _TOKENS, ("direction",))
        self._cost = Counter("deadlined_run_cost_micros_total", "What the models of all runs cost, in millionths.")
        self._shares = Histogram(
            "deadlined_run_budget_used_ratio", "Used of each limit when a run settled.", _SHARES, ("budget",)
        )
        self._at_limit = Counter("deadlined_runs_reached_step_limit_total", "Runs that used all their steps.")
        self._abandoned = Counter(
            "deadlined_runs_abandoned_total", "Runs that ended because their client or a person stayed away.", ("how",)
        )
        self._interrupted = Counter("deadlined_runs_interrupted_total", "Settled runs that had needed a person.")
        self._needed = Counter("deadlined_human_interruptions_total", "How often a person was needed.", ("for",))
        self._decided = Counter("deadlined_approvals_decided_total", "Approvals that were decided.", ("decision",))
        self._fired = Counter("deadlined_detectors_fired_total", "Detectors that fired.", ("detector", "level"))
        self._refused = Counter("deadlined_budget_refused_total", "Charges that a limit refused.", ("budget",))
        self._not_done = Counter("deadlined_finish_refused_total", "Requests to finish that a check refused.")
        self.on: dict[str, Callable[[Event], None]] = {
            EventKind.RUN_ADMITTED: lambda _event: self._opened.add(),
            EventKind.RUN_SETTLED: self._settle,
            EventKind.RUN_SUSPENDED: self._suspended,
            EventKind.APPROVAL_ASKED: lambda _event: self._needed.add("approval"),
            EventKind.APPROVAL_DECIDED: lambda event: self._decided.add(_word(event.data, "decision", _DECISIONS)),
            EventKind.DETECTOR_FIRED: self._fire,
            EventKind.BUDGET_REFUSED: lambda event: self._refused.add(_budget(event.data.get("dimension"))),
            EventKind.FINISH_REFUSED: lambda _event: self._not_done.add(),
        }

    def families(self) -> list[Family]:
        """All of them, with the gauges as they are now."""
        most = Gauge("deadlined_run_tool_calls_max", "The most tool calls that a settled run had.")
        most.set(self._most_calls)
        counted: list[Family] = [
            self._opened,
            self._settled,
            self._calls,
            most,
            self._steps,
            self._seconds,
            self._tokens,
            self._cost,
        ]
        ends: list[Family] = [self._shares, self._at_limit, self._abandoned, self._interrupted]
        return [
            *counted,
            *ends,
            *self._ratios(),
            self._needed,
            self._decided,
            self._fired,
            self._refused,
            self._not_done,
        ]

    def _settle(self, event: Event) -> None:
        data = event.data
        reason = _word(data, "reason", _REASONS)
        self._settled.add(_word(data, "status", _STATUSES), reason)
        if reason in _ABANDONED:
            self._abandoned.add(_ABANDONED[RunReason(reason)])
        if data.get("human"):
            self._interrupted.add()
        self._measure(data)
        self._compare(data.get("used") or {}, data.get("limits") or {})
        if data.get("deadline_ms") and "elapsed_ms" in data:
            self._shares.see(data["elapsed_ms"] / data["deadline_ms"], Dimension.WALL_MS)

    def _measure(self, data: Mapping[str, Any]) -> None:
        """How much of everything; a run whose daemon died cannot say it all."""
        if "calls" in data:
            self._calls.see(data["calls"])
            self._most_calls = max(self._most_calls, data["calls"])
        if "step" in data:
            self._steps.see(data["step"])
        if "elapsed_ms" in data:
            self._seconds.see(data["elapsed_ms"] / 1_000)
        for direction in ("in", "out"):
            if f"tokens_{direction}" in data:
                self._tokens.see(data[f"tokens_{direction}"], direction)
        self._cost.add(by=data.get("cost_micros", 0))

    def _compare(self, used: Mapping[str, int], limits: Mapping[str, int]) -> None:
        for name, limit in limits.items():
            if limit > 0 and name != Dimension.WALL_MS:  # time is the deadline's
                self._shares.see(used.get(name, 0) / limit, _budget(name))
        steps = limits.get(Dimension.STEPS)
        if steps is not None and used.get(Dimension.STEPS, 0) >= steps:
            self._at_limit.add()

    def _suspended(self, event: Event) -> None:
        reason = event.data.get("reason")
        if reason != RunReason.APPROVAL_REQUIRED:  # that one was asked, and counted there
            self._needed.add(_NEEDED.get(RunReason(reason), "input") if reason in _REASONS else "input")

    def _fire(self, event: Event) -> None:
        self._fired.add(_word(event.data, "detector", _DETECTORS), _word(event.data, "level", _LEVELS))

    def _ratios(self) -> list[Gauge]:
        of_runs = {
            "deadlined_run_step_limit_ratio": ("Of all settled runs, those that used all their steps.", self._at_limit),
            "deadlined_run_abandoned_ratio": ("Of all settled runs, those that were abandoned.", self._abandoned),
            "deadlined_run_interrupted_ratio": (
                "Of all settled runs, those that had needed a person.",
                self._interrupted,
            ),
        }
        settled = sum(self._settled.values.values())
        gauges = []
        for name, (says, counter) in of_runs.items():
            gauge = Gauge(name, says)
            if settled:
                gauge.set(sum(counter.values.values()) / settled)
            gauges.append(gauge)
        return gauges


def _word(data: Mapping[str, Any], field: str, words: Container[str]) -> str:
    value = data.get(field)
    return value if isinstance(value, str) and value in words else OTHER


def _budget(name: object) -> str:
    if isinstance(name, str) and name.startswith("tool_calls["):
        return _PER_TOOL
    return name if isinstance(name, str) and name in _DIMENSIONS else OTHER
