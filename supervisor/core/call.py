"""One call, from its grant to its one settlement. Every transition is in this file.

Rules
1. A call settles once: when its answer is whole and in time, or when the kernel has confirmed the death of its worker,
   or (unconfirmed) when the confirm budget is spent.
2. An answer that was read before the deadline, with no kill decided and none sent by the killer, wins. Any later one is
   a late result: it is noted and changes nothing.
3. The deadline kills without asking this machine: the killer holds it. The machine learns of it by `Died` (with the
   instant of the kill) or by an answer that came too late.
4. Every other reason to end a call is the first one that was asked for; it is decided at that instant, executed after
   the grace, never later than the deadline.
5. Before `Accepted` was heard the tool did not run: not delivered. After it, with no answer: unknown. A call that asks
   for no `Accepted` (read-only: it may be sent again whatever became of it) counts as accepted once it is placed.
   A worker that took nothing of the frame, or is dead by itself before `Accepted`, was lost before the call came: the
   call goes to another one, once.
6. A worker that died with no kill decided is lost; if its group ran out of memory, that is the reason. An answer from
   such a group counts for nothing: the limit is the whole call's, and a part of it was killed.
7. An end that its contract wants tried again (`core/retry`) is not settled: the call is in BACKOFF, holds no worker and
   waits for the shell's word. `RetryRefused` settles it as it had ended; `RetryDue` lets another attempt begin, which
   starts from nothing but what is known of delivery: of several attempts the one that may have done most counts.
8. Between two attempts nothing runs. The deadline then is `time_budget` in the phase `backoff`; a wish to end it
   cancels it; what keeps the next attempt from beginning leaves the end of the one before.
9. The machine is total: an input that means nothing in a state changes nothing ("stay" is written for each).

States: WAITING (granted, no worker yet) → SENT → RUNNING → SETTLED, with DYING after a kill was decided, from SENT back
to WAITING by rule 5, and from SENT or RUNNING to BACKOFF and WAITING by rule 7.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, TypeAlias

import msgspec

from protocol._contracts import Contract, RetryCause
from protocol._deadlines import NS_PER_MS
from protocol._outcomes import Delivery, Reason, Status, Survivor
from protocol._worker_messages import Ended, Reaped
from supervisor.core.retry import cause_of, worth_another


class State(Enum):
    """Where a call is. Hashed by identity: Enum's own hash is a Python function, and the table is read per frame."""

    __hash__ = object.__hash__

    WAITING = auto()
    SENT = auto()
    RUNNING = auto()
    DYING = auto()
    BACKOFF = auto()
    SETTLED = auto()


# ---------------------------------------------------------------- inputs


class Placed(msgspec.Struct, gc=False):
    """A worker is free for it."""

    now_ns: int


class Expired(msgspec.Struct, gc=False):
    """Its deadline passed before a worker was free."""

    now_ns: int


class Accepted(msgspec.Struct, gc=False):
    """The worker is about to touch tool code."""

    now_ns: int


class Unsent(msgspec.Struct, gc=False):
    """The worker's socket took nothing of its frame: that worker is dead or broken, and has not heard of the call."""

    now_ns: int


class Answered(msgspec.Struct):
    """The worker's terminal frame was read at ``now_ns`` (a clock read after the slot was disarmed).
    ``killed_ns``: when the killer signalled the worker, 0 if it did not. ``out_of_memory``: the kernel killed a process
    of the call for memory."""

    ended: Ended
    now_ns: int
    killed_ns: int = 0
    out_of_memory: bool = False


class EndAsked(msgspec.Struct, gc=False):
    """Somebody wants the call to end for ``reason``; ``status`` is what it will be (killed, cancelled; of one that
    has no worker yet also waiting for a person)."""

    status: Status
    reason: Reason
    now_ns: int
    detail: str = ""


class Died(msgspec.Struct):
    """The kernel has confirmed that no process of the worker is left, after all it wrote was read.
    ``signalled_ns``: when the killer, or the second line, sent SIGKILL; 0 if neither did."""

    now_ns: int
    signalled_ns: int = 0
    seen: int = 0
    reaped: Reaped | None = None
    out_of_memory: bool = False


class ConfirmSpent(msgspec.Struct, gc=False):
    """The confirm budget ran out and the worker is still not dead."""

    now_ns: int
    signalled_ns: int = 0
    seen: int = 0
    survivors: list[Survivor] = []


class RetryRefused(msgspec.Struct, gc=False):
    """There is no further attempt: no time, no budget, a tool in quarantine."""

    now_ns: int


class RetryDue(msgspec.Struct, gc=False):
    """The wait before its next attempt is over."""

    now_ns: int


Input: TypeAlias = (
    Placed | Expired | Accepted | Unsent | Answered | EndAsked | Died | ConfirmSpent | RetryRefused | RetryDue
)

# ---------------------------------------------------------------- effects


class Dispatch(msgspec.Struct, gc=False):
    """Arm the deadline, then write the Call frame."""


class Kill(msgspec.Struct, gc=False):
    """Let the killer end the worker at ``at_ns`` (SIGTERM at ``term_ns`` first, 0: none)."""

    at_ns: int
    term_ns: int = 0


class PlaceAgain(msgspec.Struct, gc=False):
    """Its worker is dead and never touched it: let go of that one and find another."""


class Release(msgspec.Struct, gc=False):
    """The worker has answered; ``reusable``: it claims that nothing of the call is left in it."""

    reusable: bool


class Death(msgspec.Struct):
    """What is known of a worker's end. ``due_ns``: the instant the kill was decided for."""

    due_ns: int
    signalled_ns: int
    confirmed_ns: int | None
    seen: int
    reaped: Reaped | None = None
    survivors: list[Survivor] = []


class Settle(msgspec.Struct):
    """The call is over. ``ended`` is the answer that counts, ``death`` the end of its worker, where there was one."""

    status: Status
    reason: Reason | None
    delivery: Delivery
    at_ns: int
    phase: str | None = None
    ended: Ended | None = None
    death: Death | None = None
    late_result: bool = False
    detail: str = ""
    passes: bool = False
    """It was refused for what holds just now: others of its run are running, or it was asked the same moments ago."""


class Retry(msgspec.Struct):
    """The attempt is over for ``cause``, and the contract wants another one. ``ended``: what would be told of it."""

    cause: RetryCause
    ended: Settle


class Begin(msgspec.Struct, gc=False):
    """Find a worker for the next attempt."""


Effect: TypeAlias = Dispatch | Kill | PlaceAgain | Release | Settle | Retry | Begin
Effects: TypeAlias = tuple[Effect, ...]

_STAY: Effects = ()
_DISPATCH: Effects = (Dispatch(),)
_AGAIN: Effects = (PlaceAgain(),)
_BEGIN: Effects = (Begin(),)
_NO_CONTRACT = Contract()
_WORST = (Delivery.NOT_DELIVERED, Delivery.FAILED_DEFINITE, Delivery.UNKNOWN)
"""What an attempt that did not succeed may have done, least first."""
_SAID_OF_A_CALL_THAT_WAITED = (Status.CANCELLED, Status.WAITING_FOR_APPROVAL)
_BY_ANSWER: dict[str, tuple[Status, Reason | None, Delivery]] = {
    "ok": (Status.OK, None, Delivery.SUCCEEDED),
    "no_result": (Status.NO_RESULT, None, Delivery.SUCCEEDED),
    "exit": (Status.ERROR, None, Delivery.FAILED_DEFINITE),
    "raised": (Status.ERROR, None, Delivery.FAILED_DEFINITE),
    "not_found": (Status.ERROR, None, Delivery.FAILED_DEFINITE),
    "cannot_run": (Status.ERROR, None, Delivery.FAILED_DEFINITE),
    "invalid_arguments": (Status.NOT_EXECUTED, Reason.INVALID_ARGUMENTS, Delivery.NOT_DELIVERED),
    "bad_cwd": (Status.NOT_EXECUTED, Reason.INVALID_ARGUMENTS, Delivery.NOT_DELIVERED),
    "refused": (Status.NOT_EXECUTED, Reason.SANDBOX_DENIED, Delivery.NOT_DELIVERED),
    "output_limit": (Status.KILLED, Reason.OUTPUT_LIMIT, Delivery.UNKNOWN),
}


class CallMachine:
    """The machine of one call. The deadline and the contract's grace are fixed for good at construction; ``contract``
    says what is tried again. ``attempts``: those that began, at least 1. ``retried``: why another was wanted.
    """

    __slots__ = (
        "_accepted",
        "_asked",
        "_before",
        "_contract",
        "_due_ns",
        "_final",
        "_first_ns",
        "_late",
        "_placed_again",
        "_unsent",
        "accepts",
        "attempts",
        "deadline_ns",
        "retried",
        "started_ns",
        "state",
        "term_grace_ms",
    )

    def __init__(
        self, deadline_ns: int, term_grace_ms: int = 0, accepts: bool = True, contract: Contract = _NO_CONTRACT
    ) -> None:
        self.deadline_ns = deadline_ns
        self.term_grace_ms = term_grace_ms
        self.accepts = accepts
        self._contract = contract
        self.state = State.WAITING
        self.started_ns: int | None = None
        self.attempts = 1
        self.retried: tuple[RetryCause, ...] = ()
        self._before: Settle | None = None
        self._first_ns: int | None = None
        self._accepted = False
        self._asked: EndAsked | None = None
        self._due_ns = deadline_ns
        self._late = self._placed_again = self._unsent = self._final = False

    @property
    def began_ns(self) -> int | None:
        """When its first attempt began, if one did; ``started_ns`` is that of the present one."""
        return self.started_ns if self._first_ns is None else self._first_ns

    def on(self, given: Input) -> Effects:
        """Take one input; the effects are to be carried out in order."""
        return _TABLE[self.state, type(given)](self, given)

    def _dispatch(self, given: Placed) -> Effects:
        if given.now_ns >= self.deadline_ns:
            return self._expire(Expired(given.now_ns))
        self._accepted = not self.accepts
        self.attempts = 1 + len(self.retried)
        self.state = State.SENT if self.accepts else State.RUNNING
        self.started_ns = given.now_ns
        return _DISPATCH

    def _expire(self, given: Expired) -> Effects:
        self.state = State.SETTLED
        if self._before is not None:
            return (Settle(Status.KILLED, Reason.TIME_BUDGET, self._before.delivery, given.now_ns, phase="backoff"),)
        return (Settle(Status.NOT_EXECUTED, Reason.TIME_BUDGET, Delivery.NOT_DELIVERED, given.now_ns, phase="queue"),)

    def _withdraw(self, given: EndAsked) -> Effects:
        self.state = State.SETTLED
        if self._before is not None:
            return (self._withdrawn_between(self._before, given),)
        status = given.status if given.status in _SAID_OF_A_CALL_THAT_WAITED else Status.NOT_EXECUTED
        return (Settle(status, given.reason, Delivery.NOT_DELIVERED, given.now_ns, phase="queue", detail=given.detail),)

    @staticmethod
    def _withdrawn_between(before: Settle, given: EndAsked) -> Settle:
        if given.status is not Status.CANCELLED:
            return msgspec.structs.replace(before, at_ns=given.now_ns)
        return Settle(given.status, given.reason, before.delivery, given.now_ns, phase="backoff", detail=given.detail)

    def _give_back(self, given: RetryRefused) -> Effects:
        assert self._before is not None
        self.state = State.SETTLED
        return (msgspec.structs.replace(self._before, at_ns=given.now_ns),)

    def _begin(self, given: RetryDue) -> Effects:
        if given.now_ns >= self.deadline_ns:
            return self._expire(Expired(given.now_ns))
        self.state = State.WAITING
        return _BEGIN

    def _accept(self, given: Accepted) -> Effects:
        self._accepted = True
        if self.state is State.SENT:
            self.state = State.RUNNING
        return _STAY

    def _answer(self, given: Answered) -> Effects:
        if given.now_ns >= self.deadline_ns or given.killed_ns:
            self.state = State.DYING
            self._late = True
            return (Kill(self.deadline_ns),)
        ended = given.ended
        status, reason, delivery = _BY_ANSWER[ended.how]
        if given.out_of_memory:
            status, reason, delivery = Status.KILLED, Reason.MEMORY_LIMIT, Delivery.UNKNOWN
        elif ended.how == "exit" and ended.code == 0:
            status, delivery = Status.OK, Delivery.SUCCEEDED
        elif ended.how == "exit" and ended.code is None and ended.signal is None:
            delivery = Delivery.UNKNOWN  # its status was collected elsewhere: it may have succeeded
        elif ended.how == "raised" and ended.error_class == "policy":
            status, reason = Status.NOT_EXECUTED, Reason.SANDBOX_DENIED
        reusable = ended.reusable and not given.out_of_memory  # its group would blame the next call for this one
        return (
            self._over(Settle(status, reason, delivery, given.now_ns, phase="tool", ended=ended)),
            Release(reusable),
        )

    def _answer_late(self, given: Answered) -> Effects:
        """It answered after its end was decided: nothing to wait for any more, so the grace is over too."""
        self._late = True
        return (Kill(min(given.now_ns, self._due_ns)),)

    def _end(self, given: EndAsked) -> Effects:
        self.state = State.DYING
        self._asked = given
        grace_ns = self.term_grace_ms * NS_PER_MS
        self._due_ns = min(given.now_ns + grace_ns, self.deadline_ns)
        return (Kill(self._due_ns, given.now_ns if grace_ns else 0),)

    def _end_too(self, given: EndAsked) -> Effects:
        """What it ends for stays the first reason; but who wants it cancelled wants no other attempt of it."""
        self._final = self._final or given.status is Status.CANCELLED
        return _STAY

    def _unsend(self, given: Unsent) -> Effects:
        self.state, self._accepted, self._unsent = State.SENT, False, True
        return (Kill(given.now_ns),)

    def _die_unheard(self, given: Died) -> Effects:
        by_itself = self._unsent or not (given.signalled_ns or given.out_of_memory)
        if not by_itself or self._placed_again or given.now_ns >= self.deadline_ns:
            return self._die(given)
        self.state, self.started_ns = State.WAITING, None
        self._placed_again, self._unsent = True, False
        return _AGAIN

    def _die(self, given: Died) -> Effects:
        death = Death(self._due_ns, given.signalled_ns, given.now_ns, given.seen, given.reaped)
        return self._settle_dead(death, given.now_ns, given.out_of_memory)

    def _give_up(self, given: ConfirmSpent) -> Effects:
        death = Death(self._due_ns, given.signalled_ns, None, given.seen, survivors=given.survivors)
        return self._settle_dead(death, given.now_ns, out_of_memory=False)

    def _settle_dead(self, death: Death, now_ns: int, out_of_memory: bool) -> Effects:
        status, reason = self._why_dead(death, out_of_memory)
        delivery = Delivery.UNKNOWN if self._accepted else Delivery.NOT_DELIVERED
        detail = self._asked.detail if self._asked else ""
        return (self._over(Settle(status, reason, delivery, now_ns, "tool", None, death, self._late, detail)),)

    def _over(self, settle: Settle) -> Settle | Retry:
        """An attempt is over, and with it the call, unless rule 7 wants another attempt."""
        if self._before is not None and settle.delivery is not Delivery.SUCCEEDED:
            settle.delivery = max(self._before.delivery, settle.delivery, key=_WORST.index)
        cause = self._worth(settle)
        if cause is None:
            self.state = State.SETTLED
            return settle
        self._rest(settle)
        self.retried += (cause,)
        return Retry(cause, settle)

    def _worth(self, settle: Settle) -> RetryCause | None:
        """Why it should be tried again; never while something of it may still run, nor against somebody's will."""
        cause = cause_of(settle.status, settle.reason, settle.ended.error_class if settle.ended else None)
        alive = settle.death is not None and settle.death.confirmed_ns is None
        if cause is None or alive or self._final:
            return None
        return cause if worth_another(self._contract, cause, settle.delivery, self.retried) else None

    def _rest(self, settle: Settle) -> None:
        """Nothing of an attempt reaches the next one but what is known of delivery."""
        self.state = State.BACKOFF
        self._before, self._first_ns, self.started_ns = settle, self.began_ns, None
        self._asked, self._due_ns = None, self.deadline_ns
        self._accepted = self._late = self._placed_again = self._unsent = False

    def _why_dead(self, death: Death, out_of_memory: bool) -> tuple[Status, Reason]:
        if self._asked is not None:
            return self._asked.status, self._asked.reason
        if out_of_memory and not death.signalled_ns:
            return Status.KILLED, Reason.MEMORY_LIMIT
        if self._unsent and death.confirmed_ns is not None and death.confirmed_ns < self.deadline_ns:
            return Status.CRASHED, Reason.WORKER_LOST
        if death.signalled_ns or self.state is State.DYING or death.confirmed_ns is None:
            return Status.KILLED, Reason.TIME_BUDGET
        return Status.CRASHED, Reason.WORKER_LOST

    def _stay(self, _given: Input) -> Effects:
        return _STAY


_M = CallMachine
_TABLE: dict[tuple[State, type], Callable[[CallMachine, Any], Effects]] = {
    (State.WAITING, Placed): _M._dispatch,
    (State.WAITING, Expired): _M._expire,
    (State.WAITING, Accepted): _M._stay,
    (State.WAITING, Unsent): _M._stay,
    (State.WAITING, Answered): _M._stay,
    (State.WAITING, EndAsked): _M._withdraw,
    (State.WAITING, Died): _M._stay,
    (State.WAITING, ConfirmSpent): _M._stay,
    (State.SENT, Placed): _M._stay,
    (State.SENT, Expired): _M._stay,
    (State.SENT, Accepted): _M._accept,
    (State.SENT, Unsent): _M._unsend,
    (State.SENT, Answered): _M._answer,
    (State.SENT, EndAsked): _M._end,
    (State.SENT, Died): _M._die_unheard,
    (State.SENT, ConfirmSpent): _M._give_up,
    (State.RUNNING, Placed): _M._stay,
    (State.RUNNING, Expired): _M._stay,
    (State.RUNNING, Accepted): _M._stay,
    (State.RUNNING, Unsent): _M._unsend,
    (State.RUNNING, Answered): _M._answer,
    (State.RUNNING, EndAsked): _M._end,
    (State.RUNNING, Died): _M._die,
    (State.RUNNING, ConfirmSpent): _M._give_up,
    (State.DYING, Placed): _M._stay,
    (State.DYING, Expired): _M._stay,
    (State.DYING, Accepted): _M._accept,
    (State.DYING, Unsent): _M._stay,
    (State.DYING, Answered): _M._answer_late,
    (State.DYING, EndAsked): _M._end_too,
    (State.DYING, Died): _M._die,
    (State.DYING, ConfirmSpent): _M._give_up,
    (State.BACKOFF, Placed): _M._stay,
    (State.BACKOFF, Expired): _M._expire,
    (State.BACKOFF, Accepted): _M._stay,
    (State.BACKOFF, Unsent): _M._stay,
    (State.BACKOFF, Answered): _M._stay,
    (State.BACKOFF, EndAsked): _M._withdraw,
    (State.BACKOFF, Died): _M._stay,
    (State.BACKOFF, ConfirmSpent): _M._stay,
    (State.BACKOFF, RetryRefused): _M._give_back,
    (State.BACKOFF, RetryDue): _M._begin,
    **{
        (state, kind): _M._stay
        for state in (State.WAITING, State.SENT, State.RUNNING, State.DYING)
        for kind in (RetryRefused, RetryDue)
    },
    **{
        (State.SETTLED, kind): _M._stay
        for kind in (
            Placed,
            Expired,
            Accepted,
            Unsent,
            Answered,
            EndAsked,
            Died,
            ConfirmSpent,
            RetryRefused,
            RetryDue,
        )
    },
}
