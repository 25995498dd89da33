"""What is known of a call when its result is made, beside its settlement."""

from __future__ import annotations

import msgspec

from protocol._outcomes import Isolation


class Facts(msgspec.Struct):
    """What the result of a call needs beside its settlement. Instants in ns, budgets in ms."""

    call: str
    tool: str
    submitted_ns: int
    deadline_ns: int
    deadline_ms: int
    started_ns: int | None
    containment: str
    isolation: Isolation
    mechanism: list[str]
    key: str
    run: str | None = None
    read_only: bool = False
    remote: bool | None = None
    """Whether the tool has work done elsewhere; None: it does not say."""
    after_kill: bool = False
    printed_bytes: int = 0
    silent_ms: int | None = None
    """Between the last sign of life (output, progress) and the deadline, where one was seen."""
    only_call: bool = False
    """Whether its worker had served nobody before it."""
    term_grace_ms: int = 0
    attempts: int = 1
    approval: str | None = None
