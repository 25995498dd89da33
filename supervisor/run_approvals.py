"""What a run makes of its questions: it waits when nothing else of it is in flight, goes on with the answer, or ends.

Between `approvals`, which knows of no run, and the runs, which know of no approval but its name. A run goes on with the
first answer that lets it; while others of its questions stand it waits again when nothing is in flight any more.
"""

from __future__ import annotations

from protocol._outcomes import Reason
from protocol._runs import RunReason, RunStatus
from supervisor.approvals import Approvals
from supervisor.clock import now_ns
from supervisor.core import run as machine
from supervisor.core.approvals import Close
from supervisor.core.approvals import State as Decided
from supervisor.core.budget import Refused, Reservation, call_amounts, run_reason
from supervisor.core.checkpoints import Checkpoint, Frame, Obstacle
from supervisor.core.completion import not_confirmed
from supervisor.core.goals import goal_hash
from supervisor.core.intake import Refusal
from supervisor.core.run import State
from supervisor.judgement import Judgement
from supervisor.live_approval import LiveApproval
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun
from supervisor.runs import RunRefusal, Runs

_LOST = "whether a person confirms the answer is not known any more; finish again"
_GOES_ON = (State.RUNNING, State.SUSPENDED)


class RunApprovals:
    """One per daemon."""

    def __init__(self, runs: Runs, judgement: Judgement, approvals: Approvals) -> None:
        self._runs, self._judgement, self._approvals = runs, judgement, approvals
        runs.on_stop.append(self._has_ended)

    def _has_ended(self, run: LiveRun) -> None:
        self._approvals.void_all(run.spec.uid, run.id, "its run has ended")

    def _find(self, frozen: Checkpoint) -> LiveRun | None:
        """The run of a question, while it has not settled."""
        try:
            run = self._runs.find(frozen.run or "", frozen.uid)
        except RunRefusal:
            return None
        return None if run.settled else run

    # ------------------------------------------------------------ asked

    def frame(self, call: LiveCall) -> Frame:
        """Where a call of a run stands that asks."""
        run = self._runs.find(call.judged.run or "", call.uid)
        return self.frame_of(run, call.judged.decision or f"{run.step}.{run.index}")

    def frame_of(self, run: LiveRun, decision: str) -> Frame:
        """Where a run stands."""
        budgets = self._runs.ledger.view(run.node)
        return Frame(
            goal_hash(run.spec.goal),
            decision,
            run.state_version,
            run.machine.remaining_ns(now_ns()) // 1_000_000,
            {name: view.left for name, view in budgets.items()},
        )

    def objection(self, frozen: Checkpoint) -> Refusal | None:
        """Why a run takes no call by now, about which a person was to be asked."""
        try:
            self._judgement.run_of(frozen.run or "", frozen.uid)
        except Refusal as refusal:
            return refusal
        return None

    def asked(self, approval: LiveApproval) -> None:
        """A call of a run waits for a person, and that is told."""
        run = self._find(approval.checkpoint)
        if run is None:  # it has ended meanwhile
            self._approvals.withdraw(approval.checkpoint.call, "its run has ended")
            return
        run.approvals.add(approval.id)
        run.asked_people += 1
        self._wait(run, approval.checkpoint.reason)

    def _wait(self, run: LiveRun, why: str) -> None:
        status, reason = RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED
        self._runs.feed(run, machine.Waited(status, reason, now_ns(), why))

    # ------------------------------------------------------------ approved

    def run_of(self, frozen: Checkpoint) -> LiveRun:
        """The run that an approved call goes on in. Raises Refusal: it takes none now, or any more."""
        run = self._find(frozen)
        if run is None or run.machine.state not in _GOES_ON:
            raise Refusal(Reason.RUN_SETTLED, "its run takes no call now: it is stopping, or has ended")
        return run

    def reserve(self, frozen: Checkpoint) -> Reservation | str:
        """Set aside what a call takes of its run; which budget has no room for it. Raises Refusal: not just now."""
        reserved = self._runs.ledger.reserve(self.run_of(frozen).node, call_amounts(frozen.tool), aside=True)
        if not isinstance(reserved, Refused):
            return reserved
        if run_reason(reserved) is None:
            raise Refusal(Reason.BUDGET, reserved.text)
        return reserved.text

    def release(self, reserved: Reservation) -> None:
        """Nothing has come of it."""
        self._runs.ledger.release(reserved)

    def begin(self, approval: LiveApproval, call: LiveCall, reserved: Reservation) -> bool:
        """The run goes on, with the approved call in flight; False: it takes none any more."""
        run = self._find(approval.checkpoint)
        if run is None or run.machine.state not in _GOES_ON:
            return False
        self._answered(run, approval)
        call.stake = self._judgement.resume(run, call, reserved)
        if run.approvals:
            self._wait(run, "other calls of it wait for a person")
        return True

    def _answered(self, run: LiveRun, approval: LiveApproval) -> None:
        run.approvals.discard(approval.id)
        if run.machine.state is State.SUSPENDED or not run.approvals:
            self._runs.feed(run, machine.Answered(now_ns()))

    def confirmed(self, approval: LiveApproval) -> None:
        """The end of a run was confirmed: its other checks follow, or it is done."""
        run = self._find(approval.checkpoint)
        if run is not None:
            run.approvals.discard(approval.id)
            self._runs.feed(run, machine.Answered(now_ns(), approval.machine.note))

    # ------------------------------------------------------------ not approved

    def waits_for(self, approval: LiveApproval) -> bool:
        """Whether a run is held up by a question."""
        run = self._find(approval.checkpoint)
        return run is not None and approval.id in run.approvals

    def goes_on(self, frozen: Checkpoint) -> bool:
        """Whether there is somebody to be told what became of a question."""
        return self._find(frozen) is not None

    def closed(self, approval: LiveApproval, close: Close) -> None:
        """A question of a run has ended, and its call does not run."""
        run = self._find(approval.checkpoint)
        if run is None:
            return
        if close.obstacle is Obstacle.STRICTER:  # asked again, under another name
            run.approvals.discard(approval.id)
        elif close.obstacle is Obstacle.EXHAUSTED:
            self._exhausted(run, approval.checkpoint)
        elif (reason := _ends_for(close)) is not None:
            self._runs.stop(run, RunStatus.BLOCKED, reason, close.text)
        elif approval.checkpoint.confirms:
            run.approvals.discard(approval.id)
            rejected = close.state is Decided.REJECTED
            said = not_confirmed(close.text) if rejected else close.text
            self._runs.feed(run, machine.CheckEnded(said, now_ns(), ran=rejected))
        else:
            run.approvals.discard(approval.id)
            if not run.approvals:
                self._runs.feed(run, machine.Answered(now_ns()))
            self._judgement.let_go(run)

    def _exhausted(self, run: LiveRun, frozen: Checkpoint) -> None:
        refused = self._runs.ledger.can(run.node, call_amounts(frozen.tool))
        if refused is not None:
            self._runs.refused(run, refused)

    # ------------------------------------------------------------ another life

    def recalled(self) -> None:
        """Runs of the last life that wait for what has been decided go on: it died between the two."""
        for run in self._runs.going_on():
            if run.stop is None or run.stop.reason is not RunReason.APPROVAL_REQUIRED:
                continue
            asked, waited_for = self._approvals.book.of_run(run.spec.uid, run.id), run.approvals
            run.approvals = {one.id for one in asked if one.pending}
            if run.approvals:
                continue
            if run.machine.confirming is None or _is_confirmed(asked, waited_for):
                self._runs.feed(run, machine.Answered(now_ns()))
            else:
                self._runs.feed(run, machine.CheckEnded(_LOST, now_ns(), ran=False))


def _is_confirmed(asked: list[LiveApproval], waited_for: set[str]) -> bool:
    """Whether a person has said yes to the end of a run, in a life that ended before that was done."""
    return any(one.id in waited_for and one.machine.state is Decided.CONSUMED for one in asked)


def _ends_for(close: Close) -> RunReason | None:
    """Why a run ends with its question."""
    if close.state is Decided.EXPIRED:
        return RunReason.APPROVAL_EXPIRED
    if close.obstacle is Obstacle.DENIED:
        return RunReason.POLICY_DENIED
    if close.state is Decided.REJECTED and close.then == "stop":
        return RunReason.APPROVAL_REJECTED
    return None
