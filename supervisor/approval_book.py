"""Every approval that the daemon knows: by its name, by its call, and by what a decision in a run holds for later.

In memory and bounded: those that wait are kept until they are decided, of the others the newest. The journal's rows are
read into it when a daemon starts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from protocol._outcomes import Reason
from supervisor.core.approvals import State
from supervisor.core.intake import Refusal
from supervisor.live_approval import LiveApproval

MOST_PENDING = 1_000
MOST_PENDING_BYTES = 32 << 20
MOST_DECIDED = 2_000


class Subject(NamedTuple):
    """What a call in a run is about, for decisions that hold for more than one. ``contract``: the tool as it is."""

    uid: int
    run: str
    tool: str
    contract: str
    args_fp: str


class ApprovalBook:
    """One per daemon."""

    def __init__(self) -> None:
        self._pending: dict[str, LiveApproval] = {}
        self._decided: OrderedDict[str, LiveApproval] = OrderedDict()
        self._by_call: dict[str, LiveApproval] = {}
        self._of_run: dict[tuple[int, str], list[LiveApproval]] = {}
        self._bytes = 0

    def check_room(self) -> None:
        """Raises Refusal while so many wait that nobody will read them all."""
        if len(self._pending) >= MOST_PENDING or self._bytes >= MOST_PENDING_BYTES:
            raise Refusal(Reason.OVERLOADED, f"{len(self._pending)} calls wait for a person, which is all that may")

    def enter(self, approval: LiveApproval) -> None:
        """One more, pending or decided."""
        frozen = approval.checkpoint
        if not frozen.confirms:
            self._by_call[frozen.call] = approval
        if frozen.run is not None:
            self._of_run.setdefault((frozen.uid, frozen.run), []).append(approval)
        if approval.pending:
            self._pending[approval.id] = approval
            self._bytes += len(frozen.arguments)
        else:
            self._keep(approval)

    def decided(self, approval: LiveApproval) -> None:
        """It does not wait any more. (One whose decision could not be written waits again: `waits_again`.)"""
        if self._pending.pop(approval.id, None) is not None:
            self._bytes -= len(approval.checkpoint.arguments)
            self._keep(approval)

    def _keep(self, approval: LiveApproval) -> None:
        self._decided[approval.id] = approval
        while len(self._decided) > MOST_DECIDED:
            _, oldest = self._decided.popitem(last=False)
            if self._by_call.get(oldest.checkpoint.call) is oldest:
                del self._by_call[oldest.checkpoint.call]

    def get(self, name: str, uid: int) -> LiveApproval | None:
        """The one of that name, for whoever may know of it: the same uid, and root."""
        found = self._pending.get(name) or self._decided.get(name)
        return found if found is not None and uid in (found.checkpoint.uid, 0) else None

    def of_call(self, call: str) -> LiveApproval | None:
        """The question that a call asked."""
        return self._by_call.get(call)

    def listing(self, uid: int, run: str | None, all_of_them: bool) -> list[LiveApproval]:
        """Oldest first; those that wait, or ``all_of_them``."""
        found = [*self._decided.values(), *self._pending.values()] if all_of_them else list(self._pending.values())
        mine = [one for one in found if one.told and uid in (one.checkpoint.uid, 0)]
        wanted = mine if run is None else [one for one in mine if one.checkpoint.run == run]
        return sorted(wanted, key=lambda one: (one.checkpoint.asked_at_ms, one.id))

    def pending(self) -> list[LiveApproval]:
        """Those that wait."""
        return list(self._pending.values())

    def of_run(self, uid: int, run: str) -> list[LiveApproval]:
        """Every one that a run has asked."""
        return self._of_run.get((uid, run), [])

    def forget_run(self, uid: int, run: str) -> None:
        """A run is over: what was decided in it holds for nothing any more."""
        self._of_run.pop((uid, run), None)

    # ------------------------------------------------------------ what a decision holds for

    def is_granted(self, subject: Subject, policy_version: str) -> bool:
        """Whether a person has said yes to this call beforehand. Not with another policy, or another tool."""
        return any(
            _covers(one, subject) and one.checkpoint.policy_version == policy_version
            for one in self.of_run(subject.uid, subject.run)
            if one.machine.state in (State.APPROVED, State.CONSUMED) and one.machine.scope != "call"
        )

    def rejection(self, subject: Subject) -> LiveApproval | None:
        """Where a person has said no to the same call of this run."""
        return next(_rejections(self.of_run(subject.uid, subject.run), subject), None)


def _covers(one: LiveApproval, subject: Subject) -> bool:
    frozen = one.checkpoint
    if (frozen.tool, frozen.contract) != (subject.tool, subject.contract):
        return False
    return one.machine.scope == "tool" or (one.edited is None and frozen.args_fp == subject.args_fp)


def _rejections(asked: list[LiveApproval], subject: Subject) -> Iterator[LiveApproval]:
    for one in asked:
        frozen = one.checkpoint
        same = (frozen.tool, frozen.args_fp) == (subject.tool, subject.args_fp)
        if same and one.machine.state is State.REJECTED:
            yield one
