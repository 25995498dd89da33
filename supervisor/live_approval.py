"""One question to a person as the daemon holds it: what was frozen, where it is, who waits to hear what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from protocol._client_messages import FromDaemon
from protocol._outcomes import CallResult, Delivery, ErrorClass, ErrorInfo, Reason, Status
from protocol._runs import ApprovalView
from supervisor.core.advice import WAIT
from supervisor.core.approvals import ApprovalMachine, Scope, State
from supervisor.core.checkpoints import Checkpoint, unpacked
from supervisor.journal.approval_rows import ASKING, Decision, StoredApproval

if TYPE_CHECKING:
    from supervisor.core.budget import Reservation
    from supervisor.journal.store import Change
    from supervisor.live_call import LiveCall


class Asker(Protocol):
    """Whoever asks, at a door."""

    uid: int

    def say(self, message: FromDaemon) -> None:
        """Send an answer, now and without waiting."""


class Prepared(NamedTuple):
    """A call that is to begin once ``changes`` are on the disk."""

    call: LiveCall
    changes: tuple[Change, ...]


NOBODY_TOLD = "the daemon ended before anybody was told that a person is asked"


class LiveApproval:
    """``prepared``: the call that comes of it, while that is being written. ``executed``: its name, from then on.
    ``edited``: the arguments of a person's own version. ``intact``: the checkpoint is what was asked for."""

    __slots__ = (
        "checkpoint",
        "edited",
        "executed",
        "held",
        "intact",
        "machine",
        "prepared",
        "told",
        "waiting",
        "written",
    )

    def __init__(self, checkpoint: Checkpoint, machine: ApprovalMachine, intact: bool = True) -> None:
        self.checkpoint, self.machine, self.intact = checkpoint, machine, intact
        self.told = False
        """Whether anybody has heard that a person is asked."""
        self.written = False
        """Whether the decision is where it will be, on the disk."""
        self.prepared: Prepared | None = None
        self.held: Reservation | None = None
        """What its run has set aside for it."""
        self.executed: str | None = None
        self.edited: str | None = None
        self.waiting: list[tuple[Asker, int]] = []

    @property
    def id(self) -> str:
        """Its name."""
        return self.checkpoint.approval

    @property
    def pending(self) -> bool:
        """Whether it waits for a person."""
        return self.machine.state is State.PENDING

    @property
    def cancelled(self) -> bool:
        """Whether somebody did not want it any more who had heard of it."""
        return self.machine.state is State.VOID and self.machine.decided_by is None and self.told

    def decision(self, now_ms: int) -> Decision:
        """What became of it, for the disk."""
        made = self.machine
        state = State.CONSUMED if made.state is State.APPROVED else made.state
        at_ms = now_ms if made.decided_at_ms is None else made.decided_at_ms
        return Decision(state, made.decided_by, at_ms, made.note, made.scope, made.version, self.edited, self.executed)

    def view(self) -> ApprovalView:
        """As a client hears of it."""
        frozen, made = self.checkpoint, self.machine
        return ApprovalView(
            frozen.approval,
            frozen.uid,
            frozen.run,
            frozen.call,
            frozen.tool,
            frozen.arguments if self.edited is None else self.edited,
            frozen.reason,
            str(made.state),
            frozen.asked_at_ms,
            frozen.expires_at_ms,
            made.version,
            made.scope,
            made.decided_by,
            made.decided_at_ms,
            made.note,
            self.executed,
        )

    def result(self) -> CallResult:
        """What its call answers while it waits, once the result that was told is not kept any more."""
        frozen = self.checkpoint
        return CallResult(
            frozen.call,
            frozen.tool,
            Status.WAITING_FOR_APPROVAL,
            frozen.run,
            Reason.APPROVAL_REQUIRED,
            error=ErrorInfo(ErrorClass.POLICY, str(Reason.APPROVAL_REQUIRED), sentence(frozen)),
            next_action=WAIT,
            summary=f"{frozen.tool}: waiting_for_approval (approval_required)",
            delivery=Delivery.NOT_DELIVERED,
            idempotency_key=frozen.key,
            durable=True,
            approval=frozen.approval,
        )


def sentence(checkpoint: Checkpoint) -> str:
    """Why a call waits, and for what."""
    return f"a person is asked first: {checkpoint.reason}; it waits as {checkpoint.approval}"


def revived(stored: StoredApproval) -> LiveApproval:
    """One of the last life. Raises msgspec.MsgspecError when its checkpoint is none."""
    checkpoint, decision = unpacked(stored.packed), stored.decision
    machine = ApprovalMachine(checkpoint.expires_at_ms)
    approval = LiveApproval(checkpoint, machine, stored.intact)
    approval.told = stored.state != ASKING
    if decision is not None:
        machine.state, machine.scope = decision.state, cast(Scope, decision.scope)
        machine.decided_by, machine.decided_at_ms = decision.by, decision.at_ms
        machine.note, machine.version = decision.note, decision.version
        approval.edited, approval.executed = decision.arguments, decision.executed
        approval.written = True
    return approval
