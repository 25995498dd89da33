"""The machine of one approval: from the question to the one decision, and to the one call that comes of it. Pure.

Rules
1. One decision: the first of approve, reject, the time and a cancel. It is never taken back, and silence is none: a
   client that goes away changes nothing.
2. Time is the wall clock's. An answer at or after ``expires_at_ms`` came too late, whether anybody has looked at the
   clock before or not.
3. An approval is good for exactly what was asked. What is not the same any more (the obstacle that comes with the
   answer, see `checkpoints`) makes it void; a budget without room makes it void too, and it is not consumed.
4. An approval is consumed by writing, in one commit, that it is and which call comes of it. Until that is written it is
   approved: a second answer joins the first, and hears of the same call. A commit that fails leaves it pending.
5. Consumed is for good: whoever approves again hears of the same call, and nothing runs.
6. A cancel while the commit is under way comes too late to keep the call from being; it is begun and ended at once.
7. The machine is total: an input that means nothing in a state changes nothing, and an answer always gets one.

States: PENDING → APPROVED → CONSUMED; PENDING → REJECTED, EXPIRED, VOID.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from supervisor.core.checkpoints import Found, Obstacle

Scope = Literal["call", "same_args", "tool"]
Then = Literal["feedback", "stop"]


class State(StrEnum):
    """Where an approval is, in the words of the wire."""

    __hash__ = object.__hash__

    PENDING = "pending"
    APPROVED = "approved"
    CONSUMED = "consumed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    VOID = "void"


# ---------------------------------------------------------------- inputs


class Approve(msgspec.Struct):
    """A person (``by``: its uid) says yes. ``edited``: with other arguments, which have been judged. ``found``: what
    keeps it from running."""

    by: int
    now_ms: int
    note: str = ""
    scope: Scope = "call"
    edited: bool = False
    found: Found | None = None


class Reject(msgspec.Struct):
    """A person says no; ``then``: whether its run goes on."""

    by: int
    now_ms: int
    note: str = ""
    then: Then = "feedback"


class TimeUp(msgspec.Struct, gc=False):
    """Somebody has looked at the clock."""

    now_ms: int


class Withdrawn(msgspec.Struct, gc=False):
    """The call, or its run, was cancelled or is over."""

    now_ms: int
    why: str


class Written(msgspec.Struct, gc=False):
    """The commit of rule 4 is through, or (not ``durable``) the disk would not take it."""

    durable: bool


Input: TypeAlias = Approve | Reject | TimeUp | Withdrawn | Written

# ---------------------------------------------------------------- effects


class Write(msgspec.Struct, gc=False):
    """Commit that it is consumed, and by which call; `Written` says how that went."""


class Start(msgspec.Struct, gc=False):
    """Run the call, and tell all who wait. ``cancelled``: end it at once."""

    cancelled: bool


class Close(msgspec.Struct, gc=False):
    """Record that it ended without a call that runs. ``obstacle``: where that was why; for a stricter policy the
    question is asked anew, under another name. ``then``: of a rejection. ``code``: whoever answered hears by it, once
    that is on the disk, that the answer changes nothing; empty: nobody has answered, or it is what was answered."""

    state: State
    text: str
    obstacle: Obstacle | None = None
    then: Then = "feedback"
    code: str = ""


class Answer(msgspec.Struct, gc=False):
    """Tell whoever answered what came of it: the call, once there is one."""


class Refuse(msgspec.Struct, gc=False):
    """Tell whoever answered that the answer changes nothing, and why. ``all``: all who wait."""

    code: str
    text: str
    all: bool = False


Effect: TypeAlias = Write | Start | Close | Answer | Refuse
Effects: TypeAlias = tuple[Effect, ...]

_STAY: Effects = ()
CODES = {
    Obstacle.MISMATCH: "approval_mismatch",
    Obstacle.STRICTER: "policy_changed",
    Obstacle.DENIED: "policy_denied",
    Obstacle.EXHAUSTED: "budget_exhausted",
}
_LATE = "nobody has answered in time; it needs to be asked for again"


class ApprovalMachine:
    """The machine of one approval. What was decided can be read off it."""

    __slots__ = ("_cancelled", "decided_at_ms", "decided_by", "expires_at_ms", "note", "scope", "state", "version")

    def __init__(self, expires_at_ms: int, state: State = State.PENDING, version: int = 1) -> None:
        self.expires_at_ms, self.state, self.version = expires_at_ms, state, version
        self.scope: Scope = "call"
        self.decided_by: int | None = None
        self.decided_at_ms: int | None = None
        self.note = ""
        self._cancelled = False

    def on(self, given: Input) -> Effects:
        """Take one input; the effects are to be carried out in order."""
        return _TABLE[self.state, type(given)](self, given)

    # ------------------------------------------------------------ pending

    def _approve(self, given: Approve) -> Effects:
        if given.now_ms >= self.expires_at_ms:
            return self._end_late(given.now_ms, "approval_expired")
        if given.found is not None:
            return self._stumble(given, given.found)
        self.state, self.scope = State.APPROVED, given.scope
        self.version += given.edited
        self._decide(given.by, given.now_ms, given.note)
        return (Write(),)

    def _stumble(self, given: Approve, found: Found) -> Effects:
        self.state = State.VOID
        self._decide(given.by, given.now_ms, found.text)
        return (Close(State.VOID, found.text, found.obstacle, code=CODES[found.obstacle]),)

    def _reject(self, given: Reject) -> Effects:
        if given.now_ms >= self.expires_at_ms:
            return self._end_late(given.now_ms, "approval_expired")
        self.state = State.REJECTED
        self._decide(given.by, given.now_ms, given.note)
        return (Close(State.REJECTED, given.note, then=given.then), Answer())

    def _expire(self, given: TimeUp) -> Effects:
        if given.now_ms < self.expires_at_ms:
            return _STAY
        return self._end_late(given.now_ms)

    def _end_late(self, now_ms: int, code: str = "") -> Effects:
        self.state = State.EXPIRED
        self._decide(None, now_ms, "")
        return (Close(State.EXPIRED, _LATE, code=code),)

    def _withdraw(self, given: Withdrawn) -> Effects:
        self.state = State.VOID
        self._decide(None, given.now_ms, given.why)
        return (Close(State.VOID, given.why),)

    def _decide(self, by: int | None, now_ms: int, note: str) -> None:
        self.decided_by, self.decided_at_ms, self.note = by, now_ms, note

    # ------------------------------------------------------------ approved

    def _written(self, given: Written) -> Effects:
        if given.durable:
            self.state = State.CONSUMED
            return (Start(self._cancelled),)
        refuse = Refuse("store_unavailable", "the decision could not be written; nothing was run", all=True)
        if self._cancelled:
            self.state = State.VOID
            return (Close(State.VOID, "cancelled"), refuse)
        self.state, self.scope, self.version = State.PENDING, "call", 1
        self.decided_by, self.decided_at_ms, self.note = None, None, ""
        return (refuse,)

    def _withdraw_late(self, _given: Withdrawn) -> Effects:
        self._cancelled = True
        return _STAY

    # ------------------------------------------------------------ decided

    def _answer(self, _given: Approve | Reject) -> Effects:
        return (Answer(),)

    def _refuse(self, _given: Approve | Reject) -> Effects:
        why = f": {self.note}" if self.note else ""
        return (Refuse(f"approval_{self.state}", f"it is {self.state} already{why}"),)

    def _stay(self, _given: Input) -> Effects:
        return _STAY


_M = ApprovalMachine
_TABLE: dict[tuple[State, type], Callable[[ApprovalMachine, Any], Effects]] = {
    (State.PENDING, Approve): _M._approve,
    (State.PENDING, Reject): _M._reject,
    (State.PENDING, TimeUp): _M._expire,
    (State.PENDING, Withdrawn): _M._withdraw,
    (State.PENDING, Written): _M._stay,
    (State.APPROVED, Approve): _M._answer,
    (State.APPROVED, Reject): _M._refuse,
    (State.APPROVED, TimeUp): _M._stay,
    (State.APPROVED, Withdrawn): _M._withdraw_late,
    (State.APPROVED, Written): _M._written,
    (State.CONSUMED, Approve): _M._answer,
    (State.CONSUMED, Reject): _M._refuse,
    (State.CONSUMED, TimeUp): _M._stay,
    (State.CONSUMED, Withdrawn): _M._stay,
    (State.CONSUMED, Written): _M._stay,
    (State.REJECTED, Approve): _M._refuse,
    (State.REJECTED, Reject): _M._answer,
    (State.REJECTED, TimeUp): _M._stay,
    (State.REJECTED, Withdrawn): _M._stay,
    (State.REJECTED, Written): _M._stay,
    **{(state, kind): _M._refuse for state in (State.EXPIRED, State.VOID) for kind in (Approve, Reject)},
    **{(state, kind): _M._stay for state in (State.EXPIRED, State.VOID) for kind in (TimeUp, Withdrawn, Written)},
}
