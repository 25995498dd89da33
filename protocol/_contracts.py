"""What a tool promises and demands, and the limits a call runs under. Undeclared means the careful reading:
not read-only, not concurrency-safe, asks on write, ten seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from protocol._deadlines import CEILING_MS, DEFAULT_TIMEOUT_MS

ContainmentLevel = Literal["pidns+cgroup", "pidns", "cgroup", "subreaper", "group"]
IsolationLevel = Literal["none", "limits", "contain", "guard", "bwrap"]
CONTAINMENT_ORDER: tuple[ContainmentLevel, ...] = ("group", "subreaper", "cgroup", "pidns", "pidns+cgroup")
"""Weakest first; a demand is met by the level itself and all to its right."""
ISOLATION_ORDER: tuple[IsolationLevel, ...] = ("none", "limits", "contain", "guard", "bwrap")


class Approval(StrEnum):
    """When a person is asked before a call runs."""

    NEVER = "never"
    ON_WRITE = "on_write"
    ALWAYS = "always"


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What one call may use. ``None`` = not limited. ``memory_bytes`` and ``pids`` bind where cgroup controllers exist."""

    open_files: int = 1024
    core_bytes: int = 0
    stack_bytes: int = 64 << 20
    file_bytes: int = 256 << 20
    cpu_ms: int | None = None
    memory_bytes: int | None = 1 << 30
    pids: int | None = 256
    output_bytes: int = 64 << 20
    tmp_bytes: int = 512 << 20


class Contract(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a tool declares about itself. ``kind`` says who runs it: the worker's interpreter, or a child it spawns."""

    kind: Literal["python", "command", "mcp"] = "python"
    read_only: bool = False
    concurrency_safe: bool = False
    resource: str | None = None
    idempotent: bool = False
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_timeout_ms: int = CEILING_MS
    term_grace_ms: int = 0
    idle_timeout_ms: int | None = None
    approval: Approval = Approval.ON_WRITE
    reusable: bool = False
    fresh: bool = False
    failure_is_feedback: bool = False
    min_isolation: IsolationLevel | None = None
    min_containment: ContainmentLevel | None = None
    home: Literal["user", "private"] = "private"
    env: tuple[str, ...] = ()
    limits: Limits | None = None

    @property
    def side_by_side(self) -> bool:
        """Whether calls of this tool may run beside others of the same run."""
        return self.read_only or self.concurrency_safe


class ToolDescription(msgspec.Struct, frozen=True):
    """One tool as a worker's Hello lists it: its contract, its arguments as JSON schema, and a line for people."""

    name: str
    description: str
    contract: Contract
    schema: dict[str, Any]
