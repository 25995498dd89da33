"""What is frozen of a call while a person is asked, and whether it still fits when the answer comes. Pure.

A checkpoint is for one tool as it was then, one directory, exactly those bytes of arguments. Its digest stands in the
chain of events, so a checkpoint that somebody has changed on the disk is found. Nobody asks a model again.
"""

from __future__ import annotations

import hashlib
from enum import Enum, auto
from typing import Literal, NamedTuple

import msgspec

from protocol._client_messages import Submit
from protocol._contracts import Approval, ContainmentLevel, Contract, IsolationLevel
from supervisor.core.idempotency import DeliveryKey
from supervisor.core.policy import Action, Ruling, stricter

Undeclared = Literal["never", "on_write", "always"]
_ENCODER = msgspec.json.Encoder()


class Frame(msgspec.Struct, frozen=True):
    """Where in its run a call stands when a person is asked; outside of a run nothing is known of it. ``decision``:
    what its submitter calls it, else the step and the call's number in it. ``budgets``: what is left by dimension, None
    without a limit."""

    goal_hash: str = ""
    decision: str = ""
    state_version: int = 0
    remaining_ms: int | None = None
    budgets: dict[str, int | None] = {}


NO_RUN = Frame()


class Checkpoint(msgspec.Struct, frozen=True):
    """All that is needed to run the call later, and to see that it is still the same one. ``claim``: its delivery
    key. ``place_id``: what ``cwd`` named. Times are wall clock, milliseconds since 1970.

    ``confirms``: it is no call, but the end of its run that a person is asked about; ``arguments`` are what is shown.
    """

    approval: str
    call: str
    uid: int
    run: str | None
    tool: str
    contract: str
    arguments: str
    args_fp: str
    key: str
    asked_at_ms: int
    expires_at_ms: int
    reason: str
    policy_version: str
    policy_action: Action
    deadline_ms: int | None = None
    cwd: str | None = None
    place_id: str = ""
    claim: DeliveryKey | None = None
    split_streams: bool = False
    max_output_bytes: int | None = None
    min_containment: ContainmentLevel | None = None
    min_isolation: IsolationLevel | None = None
    frame: Frame = NO_RUN
    confirms: bool = False

    def packed(self) -> bytes:
        """As it is stored."""
        return _ENCODER.encode(self)

    def submit(self, arguments: str | None = None) -> Submit:
        """What a client would send to have the same call, with other arguments where a person has edited them."""
        return Submit(
            0,
            self.tool,
            self.arguments if arguments is None else arguments,
            self.deadline_ms,
            self.cwd,
            self.run,
            detach=True,
            decision=self.frame.decision or None,
            split_streams=self.split_streams,
            max_output_bytes=self.max_output_bytes,
            min_containment=self.min_containment,
            min_isolation=self.min_isolation,
        )


def unpacked(packed: bytes) -> Checkpoint:
    """A stored checkpoint. Raises msgspec.MsgspecError for what is none."""
    return msgspec.json.decode(packed, type=Checkpoint)


def digest(packed: bytes) -> str:
    """Of a stored checkpoint: hex SHA-256, as its event has it."""
    return hashlib.sha256(packed).hexdigest()


class Question(NamedTuple):
    """Why a person must be asked about a call, and what the policy of then says of it."""

    why: str
    action: Action


class Asked(NamedTuple):
    """What is to be asked about a call. ``args_fp``: its whole fingerprint."""

    submit: Submit
    question: Question
    args_fp: str


def question(
    contract: Contract, undeclared: Undeclared, ruling: Ruling, profile: Approval | None = None
) -> Question | None:
    """What to ask about a call that is not denied; None: nothing. ``undeclared``: what a tool wants that says
    nothing; ``profile``: what the profile of the call's run says in place of both."""
    if ruling.action is Action.ASK:
        return Question(ruling.reason, ruling.action)
    wanted = profile or contract.approval or Approval(undeclared)
    if wanted is Approval.ALWAYS:
        who = "the run's profile" if profile else "the tool"
        return Question(f"{who} asks before every call", ruling.action)
    if wanted is Approval.ON_WRITE and not contract.read_only:
        declared = "" if contract.approval else ", and its contract does not say that nobody need be asked"
        why = ", and the run's profile asks before that" if profile else declared
        return Question(f"the tool may change something{why}", ruling.action)
    return None


class Obstacle(Enum):
    """Why an approved call cannot run as it was asked for."""

    MISMATCH = auto()
    """Something is not what it was: the approval is for another thing."""
    STRICTER = auto()
    """The rules have come to want a person's word about it: the one that was given came before them."""
    DENIED = auto()
    EXHAUSTED = auto()


class Present(NamedTuple):
    """How things are when the answer comes. ``intact``: the checkpoint has the digest of its event. ``contract``: None
    when the tool is not served any more. ``ruling``: asked for only when the policy's version is another."""

    contract: str | None
    place_id: str
    policy_version: str
    ruling: Ruling | None = None
    intact: bool = True


class Found(NamedTuple):
    """An obstacle, in words too."""

    obstacle: Obstacle
    text: str


def obstacle(checkpoint: Checkpoint, present: Present) -> Found | None:
    """What keeps an approved call from running; the first of: checkpoint, tool, place, policy. (Its run's budget comes
    behind them, and is its ledger's to say.)"""
    if (differs := _difference(checkpoint, present)) is not None:
        return Found(Obstacle.MISMATCH, f"approval does not match: {differs}; it needs to be asked for again")
    ruling = present.ruling
    if present.policy_version != checkpoint.policy_version and ruling is not None:
        if ruling.action is Action.DENY:
            return Found(Obstacle.DENIED, f"the policy has changed and denies it: {ruling.reason}")
        if stricter(ruling.action, checkpoint.policy_action):
            return Found(Obstacle.STRICTER, f"the policy has become stricter since it was asked: {ruling.reason}")
    return None


def _difference(checkpoint: Checkpoint, present: Present) -> str | None:
    if not present.intact:
        return "its record is not what was asked for"
    if present.contract is None:
        return f"there is no tool {checkpoint.tool} any more"
    if present.contract != checkpoint.contract:
        return f"the tool {checkpoint.tool} is not what it was (its contract or the form of its arguments has changed)"
    if present.place_id != checkpoint.place_id:
        return f"the directory {checkpoint.cwd} is not the one that it was"
    return None
