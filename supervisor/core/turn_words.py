"""What goes into the machine of a loop and what comes out of it: inputs say what has happened, effects what is to be
done. `turn` has the machine; `supervisor/agent.py` carries the effects out.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from protocol._outcomes import CallResult
from protocol._runs import ProviderReason, StopRecord
from supervisor.core.context import LAST, Pins
from supervisor.core.host_tools import Finish
from supervisor.core.model_events import Request, StopReason, ToolCall, Usage
from supervisor.core.provider_failures import ProviderFailure
from supervisor.core.retry import DEFAULT, RetrySettings


class Terms(msgspec.Struct, frozen=True):
    """How the loop asks. ``max_out``: tokens of a turn; ``last``: messages that a model is shown, beside the system's
    and what is pinned."""

    max_out: int = 4_096
    last: int = LAST
    retry: RetrySettings = DEFAULT


class Proposed(msgspec.Struct, frozen=True):
    """A call of a tool of the daemon's, to be made under ``key``."""

    call: ToolCall
    key: str
    decision: str


class Declined(msgspec.Struct, frozen=True):
    """A call that means nothing to the loop, or not now; ``text`` is what its model is told."""

    call: ToolCall
    text: str
    decision: str


# ---------------------------------------------------------------- inputs


class Begun(msgspec.Struct, frozen=True):
    """The run is open."""


class Looked(msgspec.Struct, frozen=True):
    """What must not be out of sight, as it stands."""

    pins: Pins


class Reserved(msgspec.Struct, frozen=True):
    """The model may be asked until ``until_ns``."""

    reservation: int
    until_ns: int
    wraps_up: bool = False


class Decided(msgspec.Struct, frozen=True):
    """The model's turn, with its stop. ``usage`` None: it reported none."""

    text: str
    calls: tuple[ToolCall, ...]
    stop: StopReason
    usage: Usage | None
    now_ns: int
    random_0_1: float = 0.5


class DecideFailed(msgspec.Struct, frozen=True):
    """The model did not come to its stop. ``usage``: what it had reported before."""

    failure: ProviderFailure
    usage: Usage | None
    now_ns: int
    random_0_1: float = 0.5


class Expired(msgspec.Struct, frozen=True):
    """The time for the turn is over."""


class Woken(msgspec.Struct, frozen=True):
    """The wait before another attempt is over."""


class Acted(msgspec.Struct, frozen=True):
    """All calls that were to be made have ended, in their order."""

    results: tuple[CallResult, ...]


class FinishRefused(msgspec.Struct, frozen=True):
    """The checks say that it is not done."""

    feedback: str


class Objected(msgspec.Struct, frozen=True):
    """The daemon does not take what was asked, for a reason that is none of the run's end."""

    code: str
    text: str


class RunStopped(msgspec.Struct, frozen=True):
    """The run does not run any more, for now or for good."""

    stop: StopRecord


class Resumed(msgspec.Struct, frozen=True):
    """It goes on, with what a person has said."""

    answer: str


Input: TypeAlias = (
    Begun
    | Looked
    | Reserved
    | Decided
    | DecideFailed
    | Expired
    | Woken
    | Acted
    | FinishRefused
    | Objected
    | RunStopped
    | Resumed
)

# ---------------------------------------------------------------- effects


class Look(msgspec.Struct, frozen=True):
    """Find out what is pinned."""


class Reserve(msgspec.Struct, frozen=True):
    """Pay for a turn, in tokens. ``begins``: with the round that it begins; else it is another attempt."""

    max_in: int
    max_out: int
    begins: bool


class Decide(msgspec.Struct, frozen=True):
    """Ask the model, until ``until_ns``."""

    request: Request
    until_ns: int


class SettleModel(msgspec.Struct, frozen=True):
    """What the turn has used; None: what was reserved is spent."""

    reservation: int
    usage: Usage | None


class Backoff(msgspec.Struct, frozen=True):
    """Pay for another attempt, and wait until ``until_ns``."""

    until_ns: int
    delay_ms: int
    detail: str


class Keep(msgspec.Struct, frozen=True):
    """Keep what is needed to go on (`TurnMachine.dump`). ``folded``: steps that are one line now."""

    folded: tuple[int, ...] = ()


class Act(msgspec.Struct, frozen=True):
    """Decline some calls, and make others."""

    declined: tuple[Declined, ...]
    proposed: tuple[Proposed, ...]


class AskFinish(msgspec.Struct, frozen=True):
    """Ask for the end."""

    finish: Finish
    plain: bool


class AskPerson(msgspec.Struct, frozen=True):
    """Ask a person."""

    question: str


class GiveUp(msgspec.Struct, frozen=True):
    """End the run: its model fails."""

    reason: ProviderReason
    detail: str


class AwaitStop(msgspec.Struct, frozen=True):
    """The run is about to stop, or to be asked for a last word: look again in a moment."""


class AwaitResumption(msgspec.Struct, frozen=True):
    """A person is asked. ``known``: calls whose ends were heard; those that come in their place let the run go on."""

    known: tuple[str, ...] = ()


Effect: TypeAlias = (
    Look
    | Reserve
    | Decide
    | SettleModel
    | Backoff
    | Keep
    | Act
    | AskFinish
    | AskPerson
    | GiveUp
    | AwaitStop
    | AwaitResumption
)
Effects: TypeAlias = tuple[Effect, ...]
