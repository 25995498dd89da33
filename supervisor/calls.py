"""The way of one call: submitted → judged → admitted → placed on a worker → settled → told.

A shell: no task per call and no policy. `submissions` says what a submit becomes, `core/admission` who runs next,
`intents` what must be on the disk first, `placement` on which worker, `core/call` what happened, `settlement` what is
told; this file carries their effects out and turns what workers say into their inputs. A kill enters as an event
(`gone`) and takes the same way out as an answer.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, assert_never

import trio

from protocol._client_messages import Submit
from protocol._deadlines import NEVER_NS, NS_PER_MS
from protocol._errors import ProtocolError
from protocol._outcomes import Reason, Status
from protocol._worker_messages import Accepted, Call, Ended, FromWorker, Progress
from supervisor.aftermath import Aftermath
from supervisor.approvals import Approvals
from supervisor.clock import loop_time, now_ns
from supervisor.containment.killer import KillerLink
from supervisor.containment.workers import Worker
from supervisor.core import admission
from supervisor.core import call as machine
from supervisor.core.checkpoints import Checkpoint
from supervisor.core.intake import Host, Refusal
from supervisor.core.quarantine import QuarantineSettings
from supervisor.core.respawn import Cause
from supervisor.core.tools import Tools
from supervisor.effects import Effects
from supervisor.endings import Endings
from supervisor.environment import Environment
from supervisor.gate import Gate
from supervisor.intents import Intents
from supervisor.journal import rows
from supervisor.journal.journal import Journal
from supervisor.journal.recovery import Recovered
from supervisor.journal.results import KeptCall
from supervisor.journal.store import Change
from supervisor.judgement import Judgement
from supervisor.live_approval import Prepared
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun
from supervisor.lives import LifeRecords
from supervisor.logs import LOG
from supervisor.memory_watch import MemoryWatch, out_of_memory
from supervisor.output_watch import OutputWatch
from supervisor.placement import Placement
from supervisor.processor_time import ProcessorTime
from supervisor.reconciling import Reconciler
from supervisor.retries import Retries
from supervisor.settlement import Settlement
from supervisor.submissions import Submissions


class Given(NamedTuple):
    """What calls stand on, made before them. ``boot``: what their names begin with."""

    boot: str
    host: Host
    tools: Tools
    endings: Endings
    admission: admission.Admission
    killer: KillerLink
    journal: Journal
    records: LifeRecords
    quarantine: QuarantineSettings
    judgement: Judgement
    approvals: Approvals


class Calls:
    """Every call of this daemon. Inputs: `submit`, `end`, and a pool's `Audience`."""

    def __init__(self, given: Given) -> None:
        self._endings, self._journal, self._records = given.endings, given.journal, given.records
        self._admission, self._approvals, self._judgement = given.admission, given.approvals, given.judgement
        self._nonces = itertools.count(1)
        self._granted: deque[admission.Effect] = deque()
        self._over: deque[str] = deque()
        self._carrying = False
        self._feeding = 0
        self._wake_ns = NEVER_NS
        self._nap: trio.CancelScope | None = None
        self._nursery: trio.Nursery | None = None
        self.live: dict[str, LiveCall] = {}
        self._watch = OutputWatch(self.end)
        self._memory = MemoryWatch(self.live, self.end)
        self._processor_time = ProcessorTime(self.live)
        self._placement = placement = Placement(given.killer, self._place)
        self.gate = Gate(placement, given.quarantine, given.journal.note)
        self._intents = Intents(given.journal, given.endings.result_ttl_ms, self._not_durable)
        self.effects, self.environment = Effects(given.journal), Environment(os.environ)
        given.journal.redaction = LOG.redaction = self.environment.redaction
        self.settlement = self._make_settlement(given)
        self.retries = Retries(
            self.settlement, self._endings, self.gate.trouble, self._journal.note, self._feed, self._keep_time
        )
        self.retries.charge = given.judgement.retry
        self._submissions = self._make_submissions(given)
        self.pools, self.workers = placement.pools, placement.workers
        self.idle, self.killer_changed = placement.idle, placement.killer_changed
        self.spawned = given.records.spawned

    def _make_settlement(self, given: Given) -> Settlement:
        self.reconciler = Reconciler(
            given.tools, self.effects, given.journal, self._place_after, self._is_stopping, self._release_key
        )
        return Settlement(
            given.host,
            self._placement.pools,
            given.endings,
            self._intents,
            self.gate.trouble,
            Aftermath(self._place_after, self._is_stopping, self.reconciler),
            self.effects,
            self.environment.redaction,
            self.live,
            self._is_over,
            given.judgement,
        )

    def _make_submissions(self, given: Given) -> Submissions:
        return Submissions(
            given.boot,
            given.host,
            given.tools,
            self.gate,
            given.journal,
            self.settlement,
            self.live,
            given.judgement,
            given.approvals,
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep time for calls that have no worker yet, and run the slow ends of others, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._watch.run)
            self._nursery.start_soon(self.gate.trouble.run)
            self._nursery.start_soon(self._memory.run)
            self._nursery.start_soon(self._processor_time.run)
            task_status.started()
            while True:
                with trio.CancelScope() as self._nap:
                    self._nap.deadline = loop_time(self._wake_ns)
                    await trio.sleep_forever()
                self._on_time(now_ns())

    # ------------------------------------------------------------ from doors

    def submit(self, submit: Submit, uid: int) -> LiveCall | KeptCall:
        """A call is asked for. It may have settled when this returns (refused, replayed); else watch it."""
        call = self._submissions.take(submit, uid)
        if not isinstance(call, LiveCall) or call.result is not None or call.id in self.live:
            return call
        self._start(call, submit.detach)
        if call.stake is not None:
            self._judgement.sent(call.stake, call)
        return call

    def start_own(self, run: LiveRun, submit: Submit) -> LiveCall:
        """A call of the daemon's own in a run. Raises Refusal."""
        call = self._submissions.own(submit, run)
        self._start(call, detached=False)
        return call

    def _start(self, call: LiveCall, detached: bool) -> None:
        self.live[call.id] = call
        call.detached = detached
        if call.stake is not None and (detached or not call.judged.contract.read_only):
            self._judgement.log(call.stake, call)
        if call.asks is not None:
            self._approvals.ask(call)
        elif detached:
            self._intents.plan(call, self._planned)
        else:
            self._admit(call)
        if call.worker is None and call.result is None:
            self._keep_time(call.judged.deadline_ns)

    def detach(self, call: LiveCall) -> None:
        """Somebody detaches a call that was attached: `LiveCall.planners` hear when that is on the disk."""
        if not call.detached:
            call.detached = True
            self._intents.detach(call)

    def end(self, call: LiveCall, status: Status, reason: Reason, detail: str = "") -> None:
        """Somebody wants a call to end. It settles when the kernel has confirmed it; a settled one is left alone."""
        if call.machine.state is machine.State.WAITING:
            self._placement.withdraw(call)
            self._carry(self._admission.cancelled(call.id))
        self._feed(call, machine.EndAsked(status, reason, now_ns(), detail))

    # ------------------------------------------------------------ from approvals

    def ask(
        self, call: LiveCall, asked: tuple[Change, ...], text: str, announced: Callable[[], Refusal | None]
    ) -> None:
        """A person must be asked: the call settles as waiting for that once ``asked`` is on the disk, and with it what
        ``announced()`` appends; or as refused, when that is what it answers."""

        def waits(call: LiveCall) -> None:
            waiting = machine.EndAsked(Status.WAITING_FOR_APPROVAL, Reason.APPROVAL_REQUIRED, now_ns(), text)
            with self._journal.together():
                refusal = announced()
                if refusal is not None:
                    waiting = machine.EndAsked(refusal.status, refusal.reason, now_ns(), str(refusal))
                self._feed(call, waiting)

        if call.machine.state is machine.State.WAITING:
            self._intents.ask(call, asked, waits)
            self._keep_time(call.judged.deadline_ns)

    def approved(self, checkpoint: Checkpoint, edited: str | None, run: LiveRun | None) -> Prepared:
        """The call that comes of an approval, and what is to be on the disk before `begin`. Raises Refusal."""
        call = self._submissions.approved(checkpoint, edited, run)
        return Prepared(call, self._intents.resumed(call))

    def begin(self, call: LiveCall) -> None:
        """A person has approved it, and that is on the disk."""
        self._submissions.stands_for(call)
        self.live[call.id] = call
        self._admit(call)
        if call.worker is None and call.result is None:
            self._keep_time(call.judged.deadline_ns)

    def answer(self, checkpoint: Checkpoint, status: Status, reason: Reason, text: str) -> str:
        """Answer for a call that will not run; the name of the answer."""
        call = self._submissions.answering(checkpoint)
        self.drop(call, status, reason, text)
        return call.id

    def drop(self, call: LiveCall, status: Status, reason: Reason, text: str) -> None:
        """One that comes of a question is not begun, and settles as that."""
        self._submissions.stands_for(call)
        self.live[call.id] = call
        self._feed(call, machine.EndAsked(status, reason, now_ns(), text))

    def recall(self, recovered: Recovered) -> None:
        """What the last life left: its results can be asked for again, its delivery keys are taken."""
        self.settlement.recall(recovered)
        self.effects.recall(recovered.effects)
        self._submissions.recall(recovered)

    def _is_stopping(self) -> bool:
        return not self.gate.open

    def _release_key(self, place: bytes) -> None:
        self._submissions.keys.release(place)

    def find(self, call_id: str, uid: int) -> LiveCall | KeptCall | None:
        """A live or kept call of the same uid (root may see all)."""
        call = self._submissions.find(call_id)
        return call if call is not None and uid in (call.uid, 0) else None

    async def wait_idle(self) -> None:
        """Wait until no call is live."""
        while self.live:
            await trio.sleep(0.005)

    # ------------------------------------------------------------ admission

    def _planned(self, call: LiveCall) -> None:
        call.tell_planned()
        self._admit(call)

    def _admit(self, call: LiveCall) -> None:
        judged, beside = call.judged, call.judged.contract.side_by_side
        alone = self.gate.trouble.lock_of(judged)
        self._carry(self._admission.submitted(call.id, call.lane, beside, judged.resource, judged.deadline_ns, alone))

    def _not_durable(self, call: LiveCall) -> None:
        text = self._journal.trouble or "the journal took nothing"
        self._feed(call, machine.EndAsked(Status.NOT_EXECUTED, Reason.STORE_UNAVAILABLE, now_ns(), text))

    def _carry(self, effects: admission.Effects) -> None:
        """Carry effects out in a loop, never in a recursion: a call that ends on the spot frees the next one, and a
        whole queue may end so."""
        self._granted += effects
        if self._carrying:
            return
        self._carrying = True
        try:
            while self._granted:
                self._carry_one(self._granted.popleft())
        finally:
            self._carrying = False

    def _carry_one(self, effect: admission.Effect) -> None:
        call = self.live.get(effect.call_id)
        if call is None:
            return
        match effect:
            case admission.Granted():
                if call.judged.contract.read_only:
                    self._placement.grant(call)
                else:  # what it is about to do is on the disk before its frame leaves
                    self._intents.claim(call, self._placement.grant)
            case admission.Refused():
                full = "the queue is full"
                self._feed(call, machine.EndAsked(Status.NOT_EXECUTED, effect.reason, now_ns(), full))
            case admission.Overdue():
                self._feed(call, machine.Expired(now_ns()))
            case _:
                assert_never(effect)

    def _place(self, call: LiveCall, worker: Worker) -> bool:
        """Start a call on a free worker; False when it ended instead, and the worker is free still."""
        try:
            call.descriptors = self._endings.open_outputs(call, worker)
        except OSError as error:  # no descriptor, no disk: this call was not delivered
            text = f"no place for its output: {error.strerror}"
            self._feed(call, machine.EndAsked(Status.NOT_EXECUTED, Reason.OVERLOADED, now_ns(), text))
            if worker.renew_output:  # a tool has seen to it that this worker gets no output file: no other call's fault
                self.pools[worker.flavour].retire(worker, Cause.PLANNED)
            return False
        worker.call, call.worker = call, worker
        self._feed(call, machine.Placed(now_ns()))
        if call.machine.state is machine.State.SETTLED and call.machine.started_ns is None:  # it expired on the way
            worker.call = None
            return False
        return True

    def _place_again(self, call: LiveCall) -> None:
        """Its worker had died idle, before it took the call: another one. It is granted already, and on the disk."""
        worker = call.worker
        assert worker is not None
        worker.ended_for = worker.ended_for or Cause.IDLE_DEATH
        worker.call = call.worker = None
        self._watch.discard(call)
        self._endings.take_back_outputs(call)
        self._placement.grant(call)
        self._keep_time(call.judged.deadline_ns)

    def _keep_time(self, deadline_ns: int) -> None:
        """A call has no worker yet: wake in time for its deadline. Deadlines mostly come in order, so this is mostly a
        comparison; a wake for a call that has found a worker since costs one empty round."""
        if deadline_ns < self._wake_ns:
            self._wake_ns = deadline_ns
            if self._nap is not None:
                self._nap.deadline = loop_time(deadline_ns)

    def _on_time(self, now: int) -> None:
        self._carry(self._admission.on_time(now))
        for call in (*self._placement.overdue(now), *self._intents.overdue(now)):
            self._feed(call, machine.Expired(now))
        self.retries.on_time(now)
        self._wake_ns = min(
            self._admission.next_timer_ns() or NEVER_NS,
            self.retries.next_timer_ns(),
            self._placement.next_timer_ns(),
            self._intents.next_timer_ns(),
        )

    def _place_after(self, call: LiveCall) -> None:
        """A command that belongs to the end of another call: it has no place of its own and waits for none."""
        self.live[call.id] = call
        self._placement.grant(call)
        if call.worker is None and call.result is None:
            self._keep_time(call.judged.deadline_ns)

    # ------------------------------------------------------------ from workers (the pools' Audience)

    def heard(self, worker: Worker, message: FromWorker) -> None:
        """A frame of the worker of a call."""
        call: LiveCall | None = worker.call
        if call is None:
            return
        match message:
            case Accepted():
                self._feed(call, machine.Accepted(0))
                self._intents.advanced(call, rows.ACCEPTED)
            case Ended():
                self._answered(call, worker, message)
            case Progress():
                call.output_bytes, call.last_activity_ns = message.output_bytes, now_ns()

    def ended(self, worker: Worker, cause: Cause) -> None:
        """Why a worker ended that is about to be told as gone."""
        self._records.gone(worker, cause.name.lower())

    def broken(self, worker: Worker, why: str) -> None:
        """The worker broke its link; it is being killed, the call ends with it."""
        if worker.call is not None:
            self._feed(worker.call, machine.EndAsked(Status.CRASHED, Reason.PROTOCOL_ERROR, now_ns(), why))

    def gone(self, worker: Worker) -> None:
        """The kernel's word on a worker."""
        self.gate.leaks.gone(worker)
        call: LiveCall | None = worker.call
        if call is not None:
            seen = worker.seen
            oom = worker.group.out_of_memory()
            reaped = self._processor_time.completed(worker)
            self._feed(call, machine.Died(worker.gone_ns, worker.signalled_ns, seen, reaped, oom))

    def unconfirmed_death(self, worker: Worker) -> None:
        """The confirm budget is spent: the call is answered, the worker stays watched and its slot in quarantine."""
        worker.ended_for = Cause.KILL_UNCONFIRMED
        self.gate.leaks.enter(worker)
        assert self._nursery is not None
        self._nursery.start_soon(self._give_up_on, worker)

    async def _give_up_on(self, worker: Worker) -> None:
        survivors = await self.gate.leaks.look(worker)
        call: LiveCall | None = worker.call
        if call is not None:
            self._feed(call, machine.ConfirmSpent(now_ns(), worker.signalled_ns, worker.seen, survivors))

    def _answered(self, call: LiveCall, worker: Worker, ended: Ended) -> None:
        worker.disarm()  # before the clock is read: see DeadlineTable
        now = now_ns()
        if ended.output_bytes:
            call.output_bytes = sum(ended.output_bytes)
        self._feed(call, machine.Answered(ended, now, worker.signalled_ns, out_of_memory(call)))

    # ------------------------------------------------------------ the machine's effects

    def _feed(self, call: LiveCall, given: machine.Input) -> None:
        self._feeding += 1
        for effect in call.machine.on(given):
            match effect:
                case machine.Dispatch():
                    self._dispatch(call)
                case machine.Kill():
                    assert call.worker is not None
                    self.pools[call.judged.flavour].end_at(call.worker, effect.at_ns, effect.term_ns)
                case machine.Settle():
                    self._watch.discard(call)
                    self.retries.forget(call)
                    assert self._nursery is not None
                    self.settlement.settle(call, effect, self._nursery)
                case machine.Release():
                    self._placement.release(call, effect.reusable)
                    self.retries.released(call)
                case machine.PlaceAgain():
                    self._place_again(call)
                case machine.Retry():
                    self._watch.discard(call)
                    self.retries.consider(call, effect)
                case machine.Begin():
                    self._placement.grant(call)
                    self._keep_time(call.judged.deadline_ns)
                case _:
                    assert_never(effect)
        self._feeding -= 1
        self._free_places()

    def _is_over(self, call: LiveCall) -> None:
        """The call holds nothing any more; but its worker is free only when its machine's effects are carried out."""
        self._over.append(call.id)
        if not self._feeding:
            self._free_places()

    def _free_places(self) -> None:
        """The place of a call goes to the next, which finds the worker ready."""
        while self._over:
            self._carry(self._admission.finished(self._over.popleft()))

    def _dispatch(self, call: LiveCall) -> None:
        worker, judged = call.worker, call.judged
        assert worker is not None
        frame = Call(
            next(self._nonces),
            judged.tool,
            judged.arguments,
            judged.deadline_ns,
            call.key,
            len(call.descriptors),
            judged.cwd,
            judged.split_streams,
            judged.output_limit,
            call.machine.accepts,
            judged.after_kill,
            self.environment.secrets_of(judged.contract),
        )
        grace_ns = judged.contract.term_grace_ms * NS_PER_MS
        self.pools[judged.flavour].end_at(worker, judged.deadline_ns, judged.deadline_ns - grace_ns if grace_ns else 0)
        try:
            whole = worker.send(frame, call.descriptors)
        except ProtocolError:
            self._feed(call, machine.Unsent(now_ns()))
            return
        finally:
            for stream in call.streams:
                stream.handed_over()
        if not whole:
            assert self._nursery is not None
            self._nursery.start_soon(worker.flush)
        worker.calls_served += 1
        self._watch.add(call, call.machine.started_ns or 0)
        self._intents.advanced(call, rows.SENT)
