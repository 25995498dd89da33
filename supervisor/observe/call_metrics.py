"""What is counted of calls: how they end, who repeats them, what is tried again, what nobody knows of them. A machine.

Rules
1. A tool is a label only while it is served here, and a word only if it is one of ours: everything else is `OTHER`.
2. An attempt in a run repeats when an equivalent one came before it in that run (``prior``), or when a detector kept it
   from running. The ratio is of the attempts at that tool.
3. A retry is the daemon's (it tried a call again by itself), or the client's: the next attempt in the same run at a
   tool whose last attempt there had failed. Its class says by what; ``argument`` and ``policy`` cannot pass by trying.
   A call that the daemon makes for a run (a check) is no attempt of anybody's.
4. An effect is open when a call that was claimed ended without anybody knowing how far it came, until it is closed or
   reconciled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Mapping

from protocol._events import Event, EventKind
from protocol._outcomes import Delivery, ErrorClass, Reason, Status
from supervisor.observe.families import OTHER, Counter, Family, Gauge
from supervisor.observe.kill_metrics import KillMetrics

_MOST_EFFECTS = 100_000
_MOST_RUNS = 4_096
_REFUSED = "refused"
_STATUSES = frozenset((*Status, _REFUSED))
_REASONS = frozenset(Reason)
_NO_REASON = "none"
_DETECTORS = frozenset(
    (
        Reason.REPEAT_CALL,
        Reason.REPEAT_ERROR,
        Reason.SAME_ERROR,
        Reason.PING_PONG,
        Reason.CYCLE,
        Reason.POLL_NO_PROGRESS,
        Reason.NO_PROGRESS,
        Reason.BREAKER,
    )
)
_POINTLESS = ("argument", "policy")
_CLASSES = frozenset((*ErrorClass, "memory_limit", "transient_provider"))
_CLASS_OF_REASON: Mapping[str, str] = {
    Reason.INVALID_ARGUMENTS: "argument",
    Reason.UNKNOWN_TOOL: "argument",
    Reason.POLICY_DENIED: "policy",
    Reason.SANDBOX_DENIED: "policy",
    Reason.APPROVAL_REJECTED: "policy",
}
_CLASS_OF_STATUS: Mapping[str, str] = {
    Status.ERROR: "feedback",
    Status.KILLED: "killed",
    Status.CRASHED: "worker_lost",
}


class CallMetrics:
    """``served``: whether a tool is served now."""

    def __init__(self, served: Callable[[str], bool]) -> None:
        self._served = served
        self._claimed: set[str] = set()
        self._attempts_under_way: set[str] = set()
        self._open: OrderedDict[str, None] = OrderedDict()
        self._failed: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._calls = Counter(
            "deadlined_calls_total", "Calls that ended or were refused.", ("tool", "status", "reason")
        )
        self._attempts = Counter("deadlined_run_attempts_total", "Attempts at calls in runs.", ("tool",))
        self._repeated = Counter(
            "deadlined_repeated_calls_total", "Attempts in runs that repeat an earlier one.", ("tool",)
        )
        self._retries = Counter(
            "deadlined_retries_total", "Attempts after a failure, by whose they are.", ("by", "class")
        )
        self._kills = KillMetrics()
        self._late = Counter("deadlined_late_results_total", "Answers that came after their call had been decided.")
        self.on: dict[str, Callable[[Event], None]] = {
            EventKind.DAEMON_STARTED: self._started,
            EventKind.CALL_VALIDATED: self._validated,
            EventKind.CALL_REFUSED: self._refused,
            EventKind.CALL_CLAIMED: self._claim,
            EventKind.CALL_ENDED: self._ended,
            EventKind.RETRY_SCHEDULED: self._retried,
            EventKind.KILL_UNCONFIRMED: self._kills.not_confirmed,
            EventKind.KILL_CONFIRMED: self._kills.confirmed,
            EventKind.EFFECT_CLOSED: self._closed,
            EventKind.EFFECT_RECONCILED: self._closed,
            EventKind.RUN_SETTLED: self._forget,
        }

    def families(self) -> list[Family]:
        """All of them, with the gauges as they are now."""
        unresolved = Gauge(
            "deadlined_unresolved_effects", "Calls that may have changed something and nobody knows, not closed."
        )
        unresolved.set(len(self._open))
        return [
            self._calls,
            self._attempts,
            self._repeated,
            self._ratio_of_repeated(),
            self._retries,
            self._ratio_of_pointless(),
            *self._kills.families(),
            self._late,
            unresolved,
        ]

    def _tool(self, event: Event) -> str:
        tool = event.data.get("tool")
        return tool if isinstance(tool, str) and self._served(tool) else OTHER

    def _started(self, _event: Event) -> None:
        """What the last daemon's journal does not tell of any more is not in flight any more."""
        self._kills.started()
        self._claimed.clear()
        self._attempts_under_way.clear()

    # ------------------------------------------------------------ attempts

    def _validated(self, event: Event) -> None:
        tool = self._tool(event)
        self._attempted(event.run, tool)
        if event.call is not None:
            self._attempts_under_way.add(event.call)
        if event.data.get("prior"):
            self._repeated.add(tool)

    def _refused(self, event: Event) -> None:
        tool, reason = self._tool(event), _word(event.data.get("reason"), _REASONS)
        self._calls.add(tool, _REFUSED, reason)
        if event.run is None:
            return
        self._attempted(event.run, tool)
        if reason in _DETECTORS:
            self._repeated.add(tool)
        else:
            self._failing(event.run, tool, _CLASS_OF_REASON.get(reason))

    def _attempted(self, run: str | None, tool: str) -> None:
        self._attempts.add(tool)
        failed = self._failed.get(run or "", {}).get(tool)
        if failed is not None:
            self._retries.add("client", failed)

    def _failing(self, run: str, tool: str, error: str | None) -> None:
        """What became of the last attempt at a tool in a run."""
        tools = self._failed.setdefault(run, {})
        if error is None:
            tools.pop(tool, None)
        else:
            tools[tool] = error
        if len(self._failed) > _MOST_RUNS:
            self._failed.popitem(last=False)

    def _forget(self, event: Event) -> None:
        self._failed.pop(event.run or "", None)

    def _retried(self, event: Event) -> None:
        self._retries.add("daemon", _word(event.data.get("class"), _CLASSES))

    # ------------------------------------------------------------ ends

    def _claim(self, event: Event) -> None:
        if event.call is not None:
            self._claimed.add(event.call)

    def _ended(self, event: Event) -> None:
        data, tool = event.data, self._tool(event)
        status, reason = _word(data.get("status"), _STATUSES), _word(data.get("reason"), _REASONS)
        self._calls.add(tool, status, reason)
        self._kills.ended(tool, reason, data)
        if "late_result" in data:
            self._late.add()
        call = event.call or ""
        if event.run is not None and call in self._attempts_under_way:
            self._failing(event.run, tool, _CLASS_OF_REASON.get(reason) or _CLASS_OF_STATUS.get(status))
        self._attempts_under_way.discard(call)
        self._settle_effect(call, data.get("delivery"))

    def _settle_effect(self, call: str, delivery: object) -> None:
        if call in self._claimed:
            self._claimed.discard(call)
            if delivery == Delivery.UNKNOWN:
                self._open[call] = None
                if len(self._open) > _MOST_EFFECTS:
                    self._open.popitem(last=False)

    def _closed(self, event: Event) -> None:
        self._open.pop(event.call or "", None)

    # ------------------------------------------------------------ ratios

    def _ratio_of_repeated(self) -> Gauge:
        ratio = Gauge(
            "deadlined_repeated_call_ratio", "Of the attempts at a tool in runs, those that repeat.", ("tool",)
        )
        for labels, attempts in self._attempts.values.items():
            ratio.set(self._repeated.values.get(labels, 0) / attempts, *labels)
        return ratio

    def _ratio_of_pointless(self) -> Gauge:
        ratio = Gauge(
            "deadlined_retries_pointless_ratio",
            "Of all retries, those after a refusal for arguments or permission, which trying again cannot cure.",
        )
        retries = self._retries.values
        if total := sum(retries.values()):
            ratio.set(sum(value for (_, error), value in retries.items() if error in _POINTLESS) / total)
        return ratio


def _word(value: object, words: Container[str]) -> str:
    if value is None:
        return _NO_REASON
    return value if isinstance(value, str) and value in words else OTHER
