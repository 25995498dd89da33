"""What a tool promises and demands, and the limits a call runs under. Undeclared means the careful reading:
not read-only, not concurrency-safe, asks on write, ten seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from protocol._deadlines import CEILING_MS, DEFAULT_TIMEOUT_MS
from protocol._roles import Role

ContainmentLevel = Literal["pidns+cgroup", "pidns", "cgroup", "subreaper", "group"]
IsolationLevel = Literal["none", "limits", "contain", "guard", "bwrap"]
CONTAINMENT_ORDER: tuple[ContainmentLevel, ...] = ("group", "subreaper", "cgroup", "pidns", "pidns+cgroup")
"""Weakest first; a demand is met by the level itself and all to its right."""
ISOLATION_ORDER: tuple[IsolationLevel, ...] = ("none", "limits", "contain", "guard", "bwrap")


def _check(name: str, value: object, least: int, most: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most):
        raise ValueError(f"{name} is {value!r}; allowed is a whole number from {least} to {most}")


class Approval(StrEnum):
    """When a person is asked before a call runs."""

    NEVER = "never"
    ON_WRITE = "on_write"
    ALWAYS = "always"


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What one call may use; ``None`` = not limited, below 0 = ValueError. ``memory_bytes`` and ``pids`` bind where
    cgroup controllers exist."""

    open_files: int = 1024
    core_bytes: int = 0
    stack_bytes: int = 64 << 20
    file_bytes: int = 256 << 20
    cpu_ms: int | None = None
    memory_bytes: int | None = 1 << 30
    pids: int | None = 256
    output_bytes: int = 64 << 20
    tmp_bytes: int = 512 << 20

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _check(name, getattr(self, name), 0, (1 << 63) - 1)


class AfterKill(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A command that runs when a call of the tool did not end by itself, to end what the kill cannot reach. ``{name}``
    in ``argv`` stands for an argument of the call. Under a deadline of its own, from its own start."""

    argv: tuple[str, ...]
    timeout_ms: int = 1_000

    def __post_init__(self) -> None:
        _check("after_kill.timeout_ms", self.timeout_ms, 1, CEILING_MS)


RetryCause = Literal["transient_tool", "worker_lost", "memory_limit"]
_MOST_ATTEMPTS, _LONGEST_WAIT_MS = 10, 600_000


class Retry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """When a call of the tool is tried again, inside its own deadline and under its own key. ``attempts``: with the
    first one; 1 = never again. ``on``: the ends that are worth it. The i-th wait is ``base_ms * 2**i``, at most
    ``cap_ms``, times something between 0.5 and 1.5.

    Only what is read-only, idempotent or was not delivered is tried again at all.
    """

    attempts: int = 3
    on: tuple[RetryCause, ...] = ("transient_tool",)
    base_ms: int = 250
    cap_ms: int = 4_000

    def __post_init__(self) -> None:
        _check("retry.attempts", self.attempts, 1, _MOST_ATTEMPTS)
        _check("retry.base_ms", self.base_ms, 1, _LONGEST_WAIT_MS)
        _check("retry.cap_ms", self.cap_ms, self.base_ms, _LONGEST_WAIT_MS)


class Refresh(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """That the same call may be made again to see whether its answer has changed: at most ``max`` times while it has
    not (None: as often as the run's detectors let it), and no sooner than ``min_interval_ms`` after its last start."""

    max: int | None = None
    min_interval_ms: int = 0

    def __post_init__(self) -> None:
        _check("refresh.max", self.max, 0, (1 << 31) - 1)
        _check("refresh.min_interval_ms", self.min_interval_ms, 0, CEILING_MS)


class Reconcile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A read-only tool that knows what became of a call whose outcome nobody saw: it is asked with ``idempotency_key``
    and ``arguments`` of that call, under a deadline of its own, and answers ``{"state": "done" | "not_done" |
    "unknown", "result": …}``."""

    tool: str
    timeout_ms: int = 2_000

    def __post_init__(self) -> None:
        _check("reconcile.timeout_ms", self.timeout_ms, 1, CEILING_MS)


class Contract(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a tool declares about itself. ``kind`` says who runs it: the worker's interpreter, or a child it spawns.

    Raises ValueError, when made and when decoded, for a time under 1 ms (the grace: 0) or over the ceiling of an hour.
    """

    kind: Literal["python", "command", "mcp"] = "python"
    read_only: bool = False
    concurrency_safe: bool = False
    resource: str | None = None
    idempotent: bool = False
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_timeout_ms: int = CEILING_MS
    term_grace_ms: int = 0
    idle_timeout_ms: int | None = None
    approval: Approval | None = None
    """None: nobody has said, and the configuration says what that means (``[approval] undeclared``)."""
    reusable: bool = False
    fresh: bool = False
    failure_is_feedback: bool = False
    min_isolation: IsolationLevel | None = None
    min_containment: ContainmentLevel | None = None
    home: Literal["user", "private"] = "private"
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Variables of the daemon's environment that the tool cannot work without, and nobody else may see."""
    limits: Limits | None = None
    isolation: IsolationLevel | None = None
    after_kill: AfterKill | None = None
    reconcile: Reconcile | None = None
    repeat_after_unknown: Literal["ask", "allow"] = "ask"
    """Whether a run may do again what it did with an outcome that nobody saw; ``ask``: somebody must find out first."""
    retry: Retry = Retry()
    lock_files: tuple[str, ...] = ()
    remote: bool | None = None
    """Whether a call has work done by processes that are not its own; None: nobody has said."""
    roles: dict[str, Role] = {}
    """What arguments are, by field (`protocol._roles`): how two calls are compared."""
    scrub: tuple[str, ...] = ()
    """What of a result says nothing (`protocol._scrub`): how two outcomes are compared."""
    refresh: Refresh | None = None
    progress: Literal["self"] | None = None
    """Who says whether a call has brought its run on: the tool, by a fingerprint; None: its outcome says it."""

    def __post_init__(self) -> None:
        _check("timeout_ms", self.timeout_ms, 1, CEILING_MS)
        _check("max_timeout_ms", self.max_timeout_ms, 1, CEILING_MS)
        _check("term_grace_ms", self.term_grace_ms, 0, CEILING_MS)
        _check("idle_timeout_ms", self.idle_timeout_ms, 1, CEILING_MS)

    @property
    def side_by_side(self) -> bool:
        """Whether calls of this tool may run beside others of the same run."""
        return self.read_only or self.concurrency_safe


class ToolDescription(msgspec.Struct, frozen=True):
    """One tool as a worker's Hello lists it: its contract, its arguments as JSON schema, and a line for people.
    ``environment``: the names of the variables that its calls get. Of one that is asked for by name also ``kept_back``,
    those of the daemon's that they do not get, and ``unset``, those that it names and the daemon does not have."""

    name: str
    description: str
    contract: Contract
    schema: dict[str, Any]
    environment: list[str] = []
    kept_back: list[str] = []
    unset: list[str] = []
