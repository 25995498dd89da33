"""Asking a person before a call runs, and what comes of the answer.

A shell: `core/policy` says what a rule wants, `core/checkpoints` what is frozen and whether it still fits,
`core/approvals` what an answer does; this file carries their effects out. `approval_book` has the approvals,
`journal/approval_rows` what is on the disk, and the calls themselves are `calls.Calls`'. What a run makes of it all is
told to ``runs``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, assert_never

import msgspec
import trio

from protocol import _client_messages as cm
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Reason, Status
from protocol._runs import ApprovalView
from supervisor.approval_book import ApprovalBook
from supervisor.clock import wall_ms
from supervisor.config_policy import ApprovalSettings
from supervisor.core import approvals as machine
from supervisor.core import checkpoints
from supervisor.core.checkpoints import NO_RUN, Checkpoint, Found, Frame, Obstacle
from supervisor.core.intake import Refusal
from supervisor.core.policy import Policy
from supervisor.core.tools import Tools
from supervisor.journal import approval_rows
from supervisor.journal.approval_rows import StoredApproval
from supervisor.journal.journal import Journal
from supervisor.journal.results import KeptCall, pack
from supervisor.live_approval import NOBODY_TOLD, Asker, LiveApproval, Prepared, revived, sentence
from supervisor.questions import Questions

if TYPE_CHECKING:
    from supervisor.live_call import LiveCall
    from supervisor.live_run import LiveRun
    from supervisor.run_approvals import RunApprovals

_LOOK_S = 30.0
"""The wall clock may be set: so often it is looked at, whatever it said last."""
_PRUNE_S = 3_600.0
_RETENTION_MS = 7 * 86_400_000
_NOTE = 2_000
_LIST_BYTES, _ROW_BYTES = 512 << 10, 600
"""Below the usual frame limit, whatever is in the arguments."""
NS_FOREVER = 1 << 62


class Starter(Protocol):
    """What is wanted of calls; `calls.Calls` is one."""

    def ask(
        self, call: LiveCall, asked: approval_rows.Changes, text: str, announced: Callable[[], Refusal | None]
    ) -> None:
        """Settle a new call as waiting, once ``asked`` is on the disk. ``announced``: it is about to be told; what is
        appended then is on the disk together with it. It may answer that nobody is asked after all, and why."""

    def approved(self, checkpoint: Checkpoint, edited: str | None, run: LiveRun | None) -> Prepared:
        """The call that comes of an approval. Raises Refusal."""

    def begin(self, call: LiveCall) -> None:
        """Run a call that `approved` has made, which is on the disk by now."""

    def drop(self, call: LiveCall, status: Status, reason: Reason, text: str) -> None:
        """Settle such a call, and do not begin it."""

    def answer(self, checkpoint: Checkpoint, status: Status, reason: Reason, text: str) -> str:
        """Answer for a call that will not run; the name of the answer."""


class Approvals:
    """One per daemon. ``calls`` and ``runs`` are set when they are there. ``wall``: milliseconds since 1970."""

    calls: Starter
    runs: RunApprovals

    def __init__(
        self,
        boot: str,
        settings: ApprovalSettings,
        policy: Policy,
        tools: Tools,
        journal: Journal,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        self._journal, self._wall = journal, wall
        self._nap: trio.CancelScope | None = None
        self._nursery: trio.Nursery | None = None
        self.book = ApprovalBook()
        self.questions = Questions(boot, settings, policy, tools, self.book, wall)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let questions expire, and forget old ones, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._prune)
            task_status.started()
            while True:
                with trio.CancelScope() as self._nap:
                    self._nap.deadline = trio.current_time() + self._until_next_s()
                    await trio.sleep_forever()
                self.look_at_the_clock()

    def look_at_the_clock(self) -> None:
        """Those whose time is up expire."""
        now = self._wall()
        for approval in self.book.pending():
            self._carry(approval, approval.machine.on(machine.TimeUp(now)))

    def _until_next_s(self) -> float:
        first = min((one.checkpoint.expires_at_ms for one in self.book.pending()), default=math.inf)
        return min(_LOOK_S, max(0.0, (first - self._wall()) / 1_000))

    async def _prune(self) -> None:
        while True:
            self._journal.append(approval_rows.too_old(self._wall() - _RETENTION_MS))
            await trio.sleep(_PRUNE_S)

    # ------------------------------------------------------------ before a call

    def ask(self, call: LiveCall) -> None:
        """Ask a person about a call that is live and has not begun. It settles as waiting when that is on the disk."""
        assert self._nursery is not None
        frame = NO_RUN if call.judged.run is None else self.runs.frame(call)
        if call.judged.cwd is None:
            self._ask(call, frame, "")
        else:
            self._nursery.start_soon(self._ask_there, call, frame)

    async def _ask_there(self, call: LiveCall, frame: Frame) -> None:
        place_id = await self.questions.place_id(call.judged.cwd)
        if call.result is None:
            self._ask(call, frame, place_id)

    def _ask(self, call: LiveCall, frame: Frame, place_id: str) -> None:
        checkpoint = self.questions.frozen(call, frame, place_id)
        approval = LiveApproval(checkpoint, machine.ApprovalMachine(checkpoint.expires_at_ms))
        self.book.enter(approval)
        call.approval, call.also = approval.id, approval_rows.pending(approval.id)
        call.watchers[approval, 0] = lambda result: self._told(approval, result)
        rows = approval_rows.asked(checkpoint, checkpoint.packed())
        self.calls.ask(call, rows, sentence(checkpoint), functools.partial(self._call_announced, approval))

    def confirm(self, run: LiveRun, arguments: str, why: str) -> None:
        """Ask a person about the end of a run, which waits for that. Raises Refusal."""
        if self._journal.refuses:  # a question that the next life would not know is not asked
            raise Refusal(Reason.STORE_UNAVAILABLE, self._journal.trouble or "the journal takes nothing")
        frame = self.runs.frame_of(run, f"{run.step}.{run.index}")
        checkpoint = self.questions.confirmation(run.spec.uid, run.id, arguments, why, frame)
        with self._journal.together():
            self._enter_asked(checkpoint, self._confirm_told)

    def _confirm_told(self, approval: LiveApproval) -> None:
        approval.told = True
        self._look_earlier()

    def _enter_asked(
        self, checkpoint: Checkpoint, told: Callable[[LiveApproval], None] = lambda _approval: None
    ) -> LiveApproval:
        """A question that is on the disk together with what its run makes of it; ``told``: when it is there."""
        approval = LiveApproval(checkpoint, machine.ApprovalMachine(checkpoint.expires_at_ms))
        self.book.enter(approval)
        rows = (*approval_rows.asked(checkpoint, checkpoint.packed()), *approval_rows.pending(approval.id))
        self._journal.append(rows, lambda _durable: told(approval))
        self._announced(approval)
        return approval

    def _call_announced(self, approval: LiveApproval) -> Refusal | None:
        """What asks is a call. Its run may be stopping by now: then there is nothing to ask, and the call says so."""
        refusal = None if approval.checkpoint.run is None else self.runs.objection(approval.checkpoint)
        if refusal is None:
            self._announced(approval)
        return refusal

    def _announced(self, approval: LiveApproval) -> None:
        """Its run waits before anybody hears of it: a run that is said to wait does so in the next life too."""
        if approval.checkpoint.run is not None:
            self.runs.asked(approval)

    def _told(self, approval: LiveApproval, result: CallResult) -> None:
        """The call that asked has settled: as waiting, or it was ended before anybody was asked."""
        if result.status is not Status.WAITING_FOR_APPROVAL:
            withdrawn = machine.Withdrawn(self._wall(), "the call ended before anybody was asked")
            self._carry(approval, approval.machine.on(withdrawn))
            return
        approval.told = True
        self._look_earlier()

    # ------------------------------------------------------------ from doors

    def take(self, asker: Asker, message: cm.ListApprovals | cm.Decide) -> None:
        """Answer what waits; or a person has decided, which is answered when it is on the disk."""
        if isinstance(message, cm.Decide):
            self._decide(asker, message)
        else:
            found = self.book.listing(asker.uid, message.run, message.all)
            asker.say(cm.Approvals(message.id, list(_fitting(found))))

    def _decide(self, asker: Asker, decide: cm.Decide) -> None:
        approval = self.book.get(decide.approval, asker.uid)
        if approval is None or not approval.told:
            text = f"no approval {decide.approval[:80]!r} is known here (any more)"
            asker.say(_failed(decide.id, "unknown_approval", text))
        elif decide.decision == "reject":
            given = machine.Reject(asker.uid, self._wall(), _note(decide.note), decide.then)
            self._carry(approval, approval.machine.on(given), (asker, decide.id))
        elif (objection := _unfit(decide, approval.checkpoint)) is not None:
            asker.say(_failed(decide.id, "invalid_arguments", objection))
        else:
            assert self._nursery is not None
            self._nursery.start_soon(self._approve, approval, asker, decide)

    async def _approve(self, approval: LiveApproval, asker: Asker, decide: cm.Decide) -> None:
        frozen, edited = approval.checkpoint, decide.arguments
        place_id = await self.questions.place_id(frozen.cwd) if approval.pending else ""
        now, found = self._wall(), None
        try:
            if approval.pending and now < frozen.expires_at_ms:
                present = self.questions.present(approval, place_id, edited is not None)
                found = checkpoints.obstacle(frozen, present) or self._prepare(approval, edited)
        except Refusal as refusal:  # not now, or not with those arguments: the question stands
            asker.say(_failed(decide.id, str(refusal.reason), str(refusal)))
            return
        given = machine.Approve(asker.uid, now, _note(decide.note), decide.scope, edited is not None, found)
        self._carry(approval, approval.machine.on(given), (asker, decide.id))

    def _prepare(self, approval: LiveApproval, edited: str | None) -> Found | None:
        """Everything for the call that comes of it, up to what its run sets aside; or why there is no room. Raises
        Refusal."""
        frozen = approval.checkpoint
        run = None if frozen.run is None else self.runs.run_of(frozen)
        if frozen.confirms:
            return None
        prepared = self.calls.approved(frozen, edited, run)
        if edited is not None:  # by a person, so that a rule that asks has its answer; one that denies has none
            self.questions.ruling(prepared.call.judged)
        held = None if run is None else self.runs.reserve(frozen)
        if isinstance(held, str):
            return Found(Obstacle.EXHAUSTED, held)
        approval.prepared, approval.held = prepared, held
        approval.edited, approval.executed = edited, prepared.call.id
        return None

    # ------------------------------------------------------------ from calls and runs

    def withdraw(self, call: str, why: str) -> None:
        """Somebody cancels a call that waits."""
        approval = self.book.of_call(call)
        if approval is not None:
            self._carry(approval, approval.machine.on(machine.Withdrawn(self._wall(), why)))

    def void_all(self, uid: int, run: str, why: str) -> None:
        """A run is over: nothing of what it asked will run."""
        for approval in list(self.book.of_run(uid, run)):
            self._carry(approval, approval.machine.on(machine.Withdrawn(self._wall(), why)))
        self.book.forget_run(uid, run)

    def kept(self, call: str) -> KeptCall | None:
        """What a call answers that waits for a person, for as long as it does."""
        approval = self.book.of_call(call)
        if approval is None or not (approval.pending and approval.told):
            return None
        return pack(approval.checkpoint.uid, approval.result(), (), NS_FOREVER)

    def binds(self, result: CallResult) -> bool:
        """Whether a delivery key answers with this result, although nothing was delivered: while a person is asked,
        when one has said no, and when somebody has cancelled it meanwhile. Else the same is asked anew."""
        if result.reason is Reason.APPROVAL_REJECTED:
            return True
        approval = self.book.of_call(result.call)
        if approval is None:
            return False
        return approval.machine.state not in (machine.State.EXPIRED, machine.State.VOID) or approval.cancelled

    def recall(self, stored: Iterable[StoredApproval]) -> None:
        """Those of the last life."""
        for one in stored:
            try:
                approval = revived(one)
            except msgspec.MsgspecError:
                self._journal.append(approval_rows.unreadable(one.id))
                continue
            self.book.enter(approval)
            if approval.pending and not approval.told:
                self._carry(approval, approval.machine.on(machine.Withdrawn(self._wall(), NOBODY_TOLD)))
            elif approval.pending and approval.checkpoint.run and not self.runs.goes_on(approval.checkpoint):
                self._carry(approval, approval.machine.on(machine.Withdrawn(self._wall(), "its run has ended")))
        self.runs.recalled()

    # ------------------------------------------------------------ the machine's effects

    def _carry(self, approval: LiveApproval, effects: machine.Effects, by: tuple[Asker, int] | None = None) -> None:
        for effect in effects:
            match effect:
                case machine.Write():
                    self._write(approval, by)
                case machine.Start():
                    self._start(approval, effect.cancelled)
                case machine.Close():
                    self._close(approval, effect, by)
                case machine.Answer():
                    assert by is not None
                    approval.waiting.append(by)
                    if approval.written:
                        self._answer(approval)
                case machine.Refuse():
                    self._refuse(approval, effect, by)
                case _:
                    assert_never(effect)

    def _write(self, approval: LiveApproval, by: tuple[Asker, int] | None) -> None:
        frozen, prepared = approval.checkpoint, approval.prepared
        if by is not None:
            approval.waiting.append(by)

        def then(durable: bool) -> None:
            self._carry(approval, approval.machine.on(machine.Written(durable)))

        now = self._wall()
        changes = approval_rows.decided(frozen, approval.decision(now))
        changes += approval_rows.consumed(frozen, None if prepared is None else prepared.call.id, now)
        changes += () if prepared is None else prepared.changes
        self._journal.append(changes, then, keep=False)

    def _start(self, approval: LiveApproval, cancelled: bool) -> None:
        prepared, held = approval.prepared, approval.held
        approval.prepared = approval.held = None
        approval.written = True
        self.book.decided(approval)
        if prepared is None:
            self.runs.confirmed(approval)
            self._answer(approval)
            return
        begins = not cancelled
        if held is not None and not (begins and self.runs.begin(approval, prepared.call, held)):
            self.runs.release(held)
            begins = False
        if begins:
            self.calls.begin(prepared.call)
        else:
            self.calls.drop(prepared.call, Status.CANCELLED, Reason.OPERATOR, "cancelled while it was approved")
        self._answer(approval)

    def _close(self, approval: LiveApproval, close: machine.Close, by: tuple[Asker, int] | None) -> None:
        """It has ended, and what its run makes of that is on the disk with it."""
        frozen = approval.checkpoint
        self._take_back(approval)
        self.book.decided(approval)
        in_run = self.runs.waits_for(approval)
        answer = _answer_of(frozen, close, in_run, in_run or (frozen.run is None and approval.told))
        with self._journal.together():
            if answer is not None:
                approval.executed = self.calls.answer(frozen, *answer)
            again = self._ask_again(frozen) if close.obstacle is Obstacle.STRICTER else None
            then = functools.partial(self._closed, approval, close, by, again)
            self._journal.append(approval_rows.decided(frozen, approval.decision(self._wall())), then)
            if in_run:
                self.runs.closed(approval, close)

    def _closed(
        self,
        approval: LiveApproval,
        close: machine.Close,
        by: tuple[Asker, int] | None,
        again: LiveApproval | None,
        durable: bool,
    ) -> None:
        """What was decided holds also where the disk has not taken it: it may have it later, and that is said."""
        approval.written = True
        asked = ""
        if again is not None:
            again.told, asked = True, f"; it is asked again as {again.id}"
            self._look_earlier()
        if close.code:
            self._refuse(approval, machine.Refuse(close.code, close.text + asked), by)
        if durable:
            self._answer(approval)
        else:
            self._refuse(approval, machine.Refuse("store_unavailable", "decided, and not on the disk yet", True))

    def _take_back(self, approval: LiveApproval) -> None:
        """Nothing has come of it."""
        held, approval.held = approval.held, None
        if held is not None:
            self.runs.release(held)
        approval.prepared = approval.executed = approval.edited = None

    def _ask_again(self, frozen: Checkpoint) -> LiveApproval:
        """The same call, under the rules of now: a new question, which nobody has heard of yet."""
        return self._enter_asked(self.questions.again(frozen))

    def _answer(self, approval: LiveApproval) -> None:
        waiting, approval.waiting = approval.waiting, []
        for asker, request in waiting:
            asker.say(cm.Decided(request, approval.view(), approval.executed))

    def _refuse(self, approval: LiveApproval, refuse: machine.Refuse, by: tuple[Asker, int] | None = None) -> None:
        told = [by] if by is not None else []
        if refuse.all:
            told, approval.waiting = [*told, *approval.waiting], []
            if approval.pending:
                self._take_back(approval)
        for asker, request in told:
            asker.say(_failed(request, refuse.code, f"{approval.id}: {refuse.text}"))

    def _look_earlier(self) -> None:
        if self._nap is not None:
            self._nap.deadline = min(self._nap.deadline, trio.current_time() + self._until_next_s())


def _answer_of(
    frozen: Checkpoint, close: machine.Close, in_run: bool, heard: bool
) -> tuple[Status, Reason, str] | None:
    """What answers for a call that will not run, where somebody waits to go on: a person has said no, or a run must
    hear that what was asked is not there any more. ``heard``: who asks again under its key is to hear of a cancel."""
    if frozen.confirms:
        return None
    if close.state is machine.State.REJECTED:
        said = f"a person has said no ({frozen.approval})" + (f": {close.text}" if close.text else "")
        return Status.NOT_EXECUTED, Reason.APPROVAL_REJECTED, said
    if close.obstacle is Obstacle.MISMATCH and in_run:
        return Status.NOT_EXECUTED, Reason.APPROVAL_REQUIRED, close.text
    if close.state is machine.State.VOID and close.obstacle is None and heard:
        return Status.CANCELLED, Reason.OPERATOR, close.text
    return None


def _fitting(found: list[LiveApproval]) -> Iterator[ApprovalView]:
    """The oldest that an answer has room for, one at least: when these are decided, others follow."""
    room = _LIST_BYTES
    for number, approval in enumerate(found):
        view = approval.view()
        room -= len(view.arguments.encode()) + len(view.note.encode()) + _ROW_BYTES
        if number and room < 0:
            return
        yield view


def _unfit(decide: cm.Decide, frozen: Checkpoint) -> str | None:
    """Why a yes cannot be given like that."""
    if frozen.confirms and (decide.arguments is not None or decide.scope != "call"):
        return "the end of a run is confirmed as it is; to have another answer, reject it and say why"
    if decide.scope != "call" and frozen.run is None:
        return f"the scope {decide.scope} holds within a run, and this call is in none"
    return None


def _note(text: str) -> str:
    return text.encode(errors="replace").decode()[:_NOTE]


def _failed(request: int, code: str, text: str) -> cm.Failed:
    return cm.Failed(request, ErrorInfo(ErrorClass.ARGUMENT, code, text))
