"""How a call ends, in words: statuses, reasons, error classes, the result object and its kill receipt.

The words are a contract: lower_snake, never renumbered, never reused. Decisions about them are made in
``supervisor/core``; here is only what can be said.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Status(StrEnum):
    """What became of a call."""

    OK = "ok"
    NO_RESULT = "no_result"
    ERROR = "error"
    KILLED = "killed"
    CRASHED = "crashed"
    CANCELLED = "cancelled"
    NOT_EXECUTED = "not_executed"
    DUPLICATE_CALL = "duplicate_call"
    TOO_EARLY = "too_early"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    UNKNOWN = "unknown"


class Reason(StrEnum):
    """Why a call ended as it did; empty (None) where the status says it all."""

    TIME_BUDGET = "time_budget"
    OUTPUT_LIMIT = "output_limit"
    MEMORY_LIMIT = "memory_limit"
    IDLE = "idle"
    WORKER_LOST = "worker_lost"
    PROTOCOL_ERROR = "protocol_error"
    SPAWN_FAILED = "spawn_failed"
    CLIENT = "client"
    DISCONNECT = "disconnect"
    OPERATOR = "operator"
    SHUTDOWN = "shutdown"
    COLLATERAL_KILL = "collateral_kill"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    POLICY_DENIED = "policy_denied"
    SANDBOX_DENIED = "sandbox_denied"
    BUDGET = "budget"
    KEY_CONFLICT = "key_conflict"
    OVERLOADED = "overloaded"
    POOL_UNHEALTHY = "pool_unhealthy"
    POISON_CALL = "poison_call"
    CONTAINMENT = "containment"
    DAEMON_RESTARTED = "daemon_restarted"
    STORE_UNAVAILABLE = "store_unavailable"
    MISSING_SECRET = "missing_secret"  # noqa: S105  # no password: that there is none
    SUPERVISOR_BUG = "supervisor_bug"
    UNKNOWN_RUN = "unknown_run"
    RUN_SETTLED = "run_settled"
    APPROVAL_REQUIRED = "approval_required"
    APPROVAL_REJECTED = "approval_rejected"
    RECONCILE_REQUIRED = "reconcile_required"
    REPEAT_CALL = "repeat_call"
    REPEAT_ERROR = "repeat_error"
    SAME_ERROR = "same_error"
    PING_PONG = "ping_pong"
    CYCLE = "cycle"
    POLL_NO_PROGRESS = "poll_no_progress"
    NO_PROGRESS = "no_progress"
    BREAKER = "breaker"


class ErrorClass(StrEnum):
    """Who can do something about an error (semantics of retry hang on it)."""

    TRANSIENT_PROVIDER = "transient_provider"
    TRANSIENT_TOOL = "transient_tool"
    ARGUMENT = "argument"
    MISSING_INPUT = "missing_input"
    POLICY = "policy"
    AUTH = "auth"
    FEEDBACK = "feedback"
    KILLED = "killed"
    WORKER_LOST = "worker_lost"
    TOOL = "tool"
    OVERLOADED = "overloaded"
    BUG = "bug"


class Delivery(StrEnum):
    """Whether the tool ran: the three answers a retry needs, and success."""

    SUCCEEDED = "succeeded"
    FAILED_DEFINITE = "failed_definite"
    UNKNOWN = "unknown"
    NOT_DELIVERED = "not_delivered"


class ErrorInfo(msgspec.Struct, rename={"class_": "class"}):
    """What went wrong: its class, a stable code, and a sentence that says what is allowed or what to do."""

    class_: ErrorClass
    code: str
    message: str


class Exit(msgspec.Struct):
    """How a command ended: an exit code, or the name of the signal that ended it."""

    code: int | None = None
    signal: str | None = None


class Timing(msgspec.Struct):
    """Milliseconds from submission; ``overrun_ms`` is how long after the deadline the kernel confirmed the end."""

    queued_ms: int = 0
    started_ms: int | None = None
    duration_ms: int = 0
    deadline_ms: int = 0
    overrun_ms: int = 0


class StreamInfo(msgspec.Struct):
    """Bytes of one stream that reached the raw file, before any truncation."""

    bytes: int = 0
    path: str | None = None


class OutputInfo(msgspec.Struct):
    """Where the raw output lies and the view of it that fits a context. ``sha256`` may come later for large files.

    ``invalid_utf8``: what the view was made from had bytes that are no UTF-8 (the raw file has them unchanged).
    """

    bytes: int = 0
    truncated: bool = False
    view: str = ""
    path: str | None = None
    streams: dict[str, StreamInfo] = {}
    sha256: str | None = None
    invalid_utf8: bool = False


class Survivor(msgspec.Struct):
    """A process that was killed and is not dead. ``command``: its words, or its name in brackets; bytes that are no
    text are escaped. ``state``: the kernel's letter. ``waits_in``: the kernel function it waits in, where that can be
    seen."""

    pid: int
    uid: int | None
    command: str
    state: str
    waits_in: str | None = None


class KillReceipt(msgspec.Struct):
    """The kernel's word that a call is over. Times are milliseconds after the instant the kill was due.

    ``killed``: processes seen alive in the call when the signal left. ``confirmed``: no process of the call is left
    (the pidfd of its namespace's first process became readable); False: the confirm budget ran out first, and
    ``survivors`` are those that were still there (the first few).
    """

    mechanism: list[str]
    killed: int
    signalled_after_ms: float
    confirmed_after_ms: float | None
    confirmed: bool
    survivors: list[Survivor] = []


class Isolation(msgspec.Struct):
    """What isolation was wanted, what was reached, and what this host could not give."""

    wanted: str
    achieved: str
    missing: list[str] = []


class Usage(msgspec.Struct):
    """What the call's processes used together."""

    cpu_ms: int
    max_rss_bytes: int


class Notice(msgspec.Struct, omit_defaults=True):
    """A remark for the caller that changes nothing about the outcome."""

    detector: str
    level: str
    text: str
    attempt: int | None = None


class CallResult(msgspec.Struct):
    """The one final record of a call; every reader gets the same.

    ``durable``: True, it was on the disk before it was told; False, the disk would not take it; None, nobody waited for
    the disk (an attached read-only call).
    """

    call: str
    tool: str
    status: Status
    run: str | None = None
    reason: Reason | None = None
    phase: str | None = None
    content: Any = None
    items: list[Any] = []
    error: ErrorInfo | None = None
    retryable: bool = False
    next_action: str | None = None
    summary: str = ""
    fingerprint: str = ""
    exit: Exit | None = None
    delivery: Delivery = Delivery.NOT_DELIVERED
    timing: Timing = msgspec.field(default_factory=Timing)
    output: OutputInfo = msgspec.field(default_factory=OutputInfo)
    kill: KillReceipt | None = None
    left_processes: int = 0
    left_threads: int = 0
    containment: str = ""
    isolation: Isolation = msgspec.field(default_factory=lambda: Isolation("contain", "contain"))
    usage: Usage | None = None
    idempotency_key: str | None = None
    replayed: bool = False
    durable: bool | None = None
    attempts: int = 1
    workdir: str | None = None
    notices: list[Notice] = []
    approval: str | None = None
    """The approval that it waits for, or that it came from."""
    decision: str | None = None
    """What a model decided, that it was part of."""


WENT_WELL = frozenset((Status.OK, Status.NO_RESULT))
"""A call did what was asked of it, though there may have been nothing to find."""
_EXIT = {
    Status.OK: 0,
    Status.NO_RESULT: 0,
    Status.ERROR: 1,
    Status.KILLED: 1,
    Status.CRASHED: 1,
    Status.CANCELLED: 5,
    Status.NOT_EXECUTED: 3,
    Status.DUPLICATE_CALL: 3,
    Status.TOO_EARLY: 3,
    Status.WAITING_FOR_APPROVAL: 4,
    Status.UNKNOWN: 1,
}


def exit_code(status: Status, reason: Reason | None) -> int:
    """The exit code of ``deadlined call`` for a settled call: 124 wherever the deadline was the reason."""
    return 124 if reason is Reason.TIME_BUDGET else _EXIT[status]
