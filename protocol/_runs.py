"""What is said of a run: how one ends, in words, its view while it goes on, and the record of its stop.

A run is a whole task of a client: one absolute deadline and one budget, kept by the daemon whoever steers the loop. The
words are a contract like those of `_outcomes`; decisions about them are made in ``supervisor/core``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from protocol._budgets import ALIASES, BudgetRecord, DimensionView
from protocol._checks import Check, FieldValue


class RunStatus(StrEnum):
    """What a run is, or what became of it."""

    RUNNING = "running"
    COMPLETED = "completed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    STUCK = "stuck"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    NEEDS_INPUT = "needs_input"
    BLOCKED = "blocked"
    TOOL_FAILED = "tool_failed"
    PROVIDER_FAILED = "provider_failed"
    CANCELLED = "cancelled"
    INTERNAL_ERROR = "internal_error"


SUSPENDED = frozenset((RunStatus.WAITING_FOR_APPROVAL, RunStatus.NEEDS_INPUT))
"""Statuses of a run that has stopped and can go on."""


class RunReason(StrEnum):
    """Why a run is not running any more."""

    FINISH_ACCEPTED = "finish_accepted"
    FINAL_TEXT = "final_text"
    TIME_BUDGET = "time_budget"
    STEP_BUDGET = "step_budget"
    MODEL_CALL_BUDGET = "model_call_budget"
    TOOL_CALL_BUDGET = "tool_call_budget"
    PER_TOOL_BUDGET = "per_tool_budget"
    TOKEN_BUDGET = "token_budget"  # noqa: S105  # no password: a model's tokens
    COST_BUDGET = "cost_budget"
    OUTPUT_BUDGET = "output_budget"
    RETRY_BUDGET = "retry_budget"
    TENANT_BUDGET = "tenant_budget"
    REPEAT_CALL = "repeat_call"
    REPEAT_ERROR = "repeat_error"
    SAME_ERROR = "same_error"
    PING_PONG = "ping_pong"
    CYCLE = "cycle"
    POLL_NO_PROGRESS = "poll_no_progress"
    NO_PROGRESS = "no_progress"
    BREAKER = "breaker"
    APPROVAL_REQUIRED = "approval_required"
    RECONCILE_REQUIRED = "reconcile_required"
    MISSING_PARAMETER = "missing_parameter"
    NO_NEW_EVIDENCE = "no_new_evidence"
    POLICY_DENIED = "policy_denied"
    SANDBOX_DENIED = "sandbox_denied"
    APPROVAL_REJECTED = "approval_rejected"
    APPROVAL_EXPIRED = "approval_expired"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    PERMANENT_ERROR = "permanent_error"
    OUTCOME_UNKNOWN = "outcome_unknown"
    WORKER_LOST = "worker_lost"
    SPAWN_FAILED = "spawn_failed"
    POISON_CALL = "poison_call"
    TRANSIENT_EXHAUSTED = "transient_exhausted"
    PERMANENT = "permanent"
    AUTH = "auth"
    CONTENT_POLICY = "content_policy"
    STREAM_INCOMPLETE = "stream_incomplete"
    CLIENT = "client"
    DISCONNECT = "disconnect"
    OPERATOR = "operator"
    PARENT = "parent"
    SHUTDOWN = "shutdown"
    SUPERVISOR_BUG = "supervisor_bug"
    STORE_UNAVAILABLE = "store_unavailable"
    RECOVERED_AFTER_CRASH = "recovered_after_crash"

    @classmethod
    def _missing_(cls, value: object) -> RunReason | None:
        """By its older name, where it has one."""
        reason = ALIASES.get(value) if isinstance(value, str) else None
        return None if reason is None else cls(reason)


Phase = Literal["queue", "decide", "tool", "complete", "backoff", "wrapup"]
"""What a run does: nothing is in flight and somebody decides; a call runs; its completion is checked; a retry waits."""
OnDisconnect = Literal["cancel", "keep"]
Outcome = Literal["done", "stopped", "suspended"]


ProviderReason = Literal["transient_exhausted", "permanent", "auth", "content_policy", "stream_incomplete"]
"""Why whoever steers a run cannot go on: its model."""


class AgentOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How the daemon steers a run itself. ``model``: ``openai:NAME``, ``scripted:FILE`` and so on; None: the one that
    its environment names. ``plan``: first a plan, then its steps. ``constraints``: lines that the model always sees.
    """

    model: str | None = None
    plan: bool = False
    constraints: list[str] = []


class FiredDetector(msgspec.Struct):
    """A detector that fired. ``count``: prior equivalent attempts (laps, steps). ``key``: what repeats, where that has
    a fingerprint; ``call``: the earlier call it points at."""

    detector: str
    level: str
    count: int
    text: str
    key: str | None = None
    call: str | None = None


class RunDeadline(msgspec.Struct):
    """A run's time in milliseconds. ``deadline_ms`` is the budget that holds; ``overrun_ms``: how long after it the run
    had ended. ``remaining_ms`` of a suspended run is what it goes on with."""

    deadline_ms: int
    elapsed_ms: int
    remaining_ms: int
    overrun_ms: int = 0


class LastAction(msgspec.Struct):
    """The last call that ended."""

    call: str
    tool: str
    status: str
    summary: str


class OpenEffect(msgspec.Struct):
    """A call that may have changed something and nobody knows: it stays listed until somebody closes it. Times are wall
    clock, milliseconds since 1970. ``key``: the idempotency key that went downstream with it."""

    call: str
    tool: str
    run: str | None
    uid: int
    key: str
    since_ms: int
    arguments: str | None = None
    closed: str | None = None
    closed_ms: int | None = None


class Artefact(msgspec.Struct):
    """A file that a call of the run left: its raw output, or its work directory (``sha256`` None)."""

    call: str
    path: str
    bytes: int = 0
    sha256: str | None = None


class StopRecord(msgspec.Struct):
    """Why a run stopped, for programs and (``text``) for people; the same bytes for every reader.

    ``code``: the older name of a budget's reason, where it has one. ``partial``: what the calls of the run found, one
    line each, newest last. ``advice``: what would help (``larger_budget``, ``other_strategy``, ``after_a_human``,
    ``never``, ``same``, ``none``).
    """

    run: str
    outcome: Outcome
    status: RunStatus
    reason: RunReason
    phase: Phase | None
    step: int
    detail: str
    text: str
    advice: str
    resumable: bool
    deadline: RunDeadline
    budgets: dict[str, DimensionView]
    detectors: list[FiredDetector] = []
    last_action: LastAction | None = None
    unresolved_effects: list[OpenEffect] = []
    partial: list[str] = []
    artefacts: list[Artefact] = []
    approvals: list[str] = []
    answer: str | None = None
    code: str | None = None
    settled_at_ms: int = 0
    effects_left_out: int = 0
    """Unresolved effects that are not in it, older than those that are."""
    durable: bool = True
    """False: the disk would not take it when it was told; a crash may undo it."""
    fields: dict[str, FieldValue] = {}
    """Of the answer, as it was given."""


class RunView(msgspec.Struct):
    """A run as it stands. ``sources``: where each effective limit came from. ``stop``: once it runs no more."""

    run: str
    uid: int
    status: RunStatus
    goal: str
    profile: str
    detectors: str
    tenant: str
    session: str | None
    parent: str | None
    workspace: str | None
    on_disconnect: OnDisconnect
    opened_at_ms: int
    step: int
    phase: Phase
    calls: int
    calls_in_flight: int
    state_version: int
    deadline: RunDeadline
    budgets: dict[str, DimensionView]
    sources: dict[str, str]
    left: BudgetRecord | None = None
    """The short form of what is left, while it goes on."""
    checks: list[Check] = []
    approvals: list[str] = []
    notices: list[FiredDetector] = []
    stop: StopRecord | None = None
    agent: AgentOptions | None = None
    """Set: the daemon steers it."""
    refused: str | None = None
    """What the last finish was refused for, once one was."""


class RunRow(msgspec.Struct):
    """A run in a list."""

    run: str
    status: RunStatus
    reason: RunReason | None
    profile: str
    goal: str
    step: int
    calls: int
    remaining_ms: int
    opened_at_ms: int


class ApprovalView(msgspec.Struct):
    """A call that waits for a person, or has had its answer. ``state``: pending, approved, rejected, expired, void,
    consumed. ``arguments``: the exact text that will run. Times are wall clock, milliseconds since 1970. ``executed``:
    the call that it became.

    One with the tool ``finish`` and no ``call`` is about a run's end: ``arguments`` show its answer, which a person is
    to confirm, and no call comes of it."""

    approval: str
    uid: int
    run: str | None
    call: str
    tool: str
    arguments: str
    reason: str
    state: str
    asked_at_ms: int
    expires_at_ms: int
    version: int = 1
    scope: str = "call"
    decided_by: int | None = None
    decided_at_ms: int | None = None
    note: str = ""
    executed: str | None = None


RUN_EXIT = {
    RunStatus.COMPLETED: 0,
    RunStatus.TOOL_FAILED: 1,
    RunStatus.PROVIDER_FAILED: 1,
    RunStatus.BUDGET_EXHAUSTED: 3,
    RunStatus.STUCK: 3,
    RunStatus.BLOCKED: 3,
    RunStatus.WAITING_FOR_APPROVAL: 4,
    RunStatus.NEEDS_INPUT: 4,
    RunStatus.CANCELLED: 5,
    RunStatus.INTERNAL_ERROR: 70,
    RunStatus.RUNNING: 0,
}
"""Exit codes of the commands that end with a run."""
