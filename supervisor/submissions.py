"""What is asked for becomes a call, the answer of an earlier one, or a refusal. Owns the names and the delivery keys of
calls, and the order in which a submit is judged: its run, the call itself, its key, the daemon, the disk, its tool, and
what its run says to it.
"""

from __future__ import annotations

import itertools
import os
import secrets

import msgspec

from protocol._client_messages import Submit
from protocol._deadlines import NS_PER_MS
from protocol._outcomes import Delivery, Notice, Reason, Status
from supervisor.approvals import Approvals
from supervisor.clock import now_ns
from supervisor.core import call as machine
from supervisor.core.arguments import same_form
from supervisor.core.checkpoints import Checkpoint
from supervisor.core.fingerprints import (
    SHOWN,
    Surroundings,
    args_fingerprint,
    call_fingerprint,
    paths_to_resolve,
    situation,
)
from supervisor.core.idempotency import (
    Earlier,
    Verdict,
    delivery_key,
    earlier_of,
    idempotency_key,
    said_of,
)
from supervisor.core.intake import NO_CONTRACT, Host, Judged, Refusal, judge
from supervisor.core.policy import Ruling
from supervisor.core.tools import Tools
from supervisor.gate import Gate
from supervisor.journal.journal import Journal
from supervisor.journal.recovery import Recovered
from supervisor.journal.results import KeptCall
from supervisor.judgement import Judgement
from supervisor.keys import Claim, Keys
from supervisor.live_call import LiveCall
from supervisor.live_run import LiveRun
from supervisor.settlement import Settlement

_UNFENCED = "a Markdown fence around the arguments was taken off"


class _Wish(msgspec.Struct):
    """A submit on its way to an answer. ``call``: the name of a call that comes of it. ``args_fp``: its whole
    fingerprint, once its arguments fit; ``claim``: that of its delivery key, once it has it."""

    call: str
    submit: Submit
    uid: int
    now_ns: int
    run: LiveRun | None = None
    args_fp: str = ""
    claim: Claim | None = None


class Submissions:
    """``live``: the calls that have not been told yet, by id."""

    def __init__(
        self,
        boot: str,
        host: Host,
        tools: Tools,
        gate: Gate,
        journal: Journal,
        settlement: Settlement,
        live: dict[str, LiveCall],
        judgement: Judgement,
        approvals: Approvals,
    ) -> None:
        self._boot, self._host, self._tools = boot, host, tools
        self._judgement, self._approvals = judgement, approvals
        self._secret_key = secrets.token_bytes(32)
        """For fingerprints of calls outside a run."""
        self._home = os.path.expanduser("~")
        self._gate, self._journal, self._settlement, self._live = gate, journal, settlement, live
        self._numbers = itertools.count(1)
        self.keys = Keys()

    def take(self, submit: Submit, uid: int) -> LiveCall | KeptCall:
        """A new call that nothing has been done for, or one that answers already: refused, in flight, or kept."""
        wish = _Wish(self._new_id(), submit, uid, now_ns())
        if submit.run is None:
            return self._answered(wish)
        try:
            run = wish.run = self._judgement.run_of(submit.run, uid)
        except Refusal as refusal:
            return self._told_before(wish) or self._refused(wish, refusal)
        self._judgement.begins(run)
        begun = False
        try:
            call = self._answered(wish)
            begun = isinstance(call, LiveCall) and call.id == wish.call and call.result is None
        finally:
            if not begun:
                self._judgement.comes_to_nothing(run)
        return call

    def _answered(self, wish: _Wish) -> LiveCall | KeptCall:
        try:
            return self._taken(wish)
        except Refusal as refusal:
            if wish.claim is not None:  # nothing was begun: the key is as new
                self.keys.release(wish.claim.key.place)
            return self._refused(wish, refusal)

    def _told_before(self, wish: _Wish) -> LiveCall | KeptCall | None:
        """What answers a later delivery in a run that takes no more calls: what was done there can still be heard."""
        submit = wish.submit
        run = self._judgement.known_run(submit.run or "", wish.uid)
        if run is None or submit.key is None:
            return None
        try:
            judged = judge(submit, self._tools, self._host, wish.now_ns)
        except Refusal:
            return None
        judged.cwd = judged.cwd or run.spec.workspace
        claim = self.keys.look(delivery_key(wish.uid, judged.run, submit.key, _said(judged)), self._what_of)
        return self.find(claim.earlier or "") if claim.verdict in (Verdict.WAIT, Verdict.REPLAY) else None

    def own(self, submit: Submit, run: LiveRun) -> LiveCall:
        """A call of the daemon's own in a run: nothing is charged for it and no detector sees it. Raises Refusal."""
        now = now_ns()
        judged = _within(judge(submit, self._tools, self._host, now), run.machine.deadline_ns, now)
        self._check_daemon(judged)
        call_id = self._new_id()
        return LiveCall(call_id, run.spec.uid, call_id, judged, now)

    def approved(self, checkpoint: Checkpoint, edited: str | None, run: LiveRun | None) -> LiveCall:
        """The call that comes of an approval, with the arguments that were asked for or those that a person has put in
        their place; for the rest it stands where the first one stood. Raises Refusal: not now, or not with those."""
        call_id, now = self._new_id(), now_ns()
        judged = judge(checkpoint.submit(edited), self._tools, self._host, now)
        if run is not None:
            judged = _within(judged, now + run.machine.remaining_ns(now) - run.machine.wrap_up_ns, now)
        self._check_daemon(judged)
        args_fp = self._fingerprint(judged, run)
        key = checkpoint.key if edited is None else _key_of(call_id, checkpoint.uid, judged)
        call = LiveCall(call_id, checkpoint.uid, key, judged, now, checkpoint.claim)
        call.fingerprint = args_fp[:SHOWN]
        if run is not None:
            call.call_fp = call_fingerprint(judged.tool, args_fp)
        call.approval, call.detached, call.planned = checkpoint.approval, True, True
        return call

    def answering(self, checkpoint: Checkpoint) -> LiveCall:
        """The call that answers for one that will not run."""
        now = now_ns()
        judged = Judged(checkpoint.tool, NO_CONTRACT, "", checkpoint.arguments, now, 0, 0, run=checkpoint.run)
        call = LiveCall(self._new_id(), checkpoint.uid, checkpoint.key, judged, now, checkpoint.claim)
        call.approval, call.detached, call.planned, call.recorded = checkpoint.approval, True, True, True
        return call

    def stands_for(self, call: LiveCall) -> None:
        """The delivery key of the call that was asked about stands for the one that came of it."""
        if call.claim is not None:
            self.keys.recall(call.claim.place, call.claim.said, call.id)

    def _new_id(self) -> str:
        return f"c_{self._boot}{next(self._numbers):06x}"

    def _taken(self, wish: _Wish) -> LiveCall | KeptCall:
        submit, uid, run = wish.submit, wish.uid, wish.run
        judged = self._judge(wish)
        args_fp = wish.args_fp = self._fingerprint(judged, run)
        if submit.key is not None:
            key = delivery_key(uid, judged.run, submit.key, _said(judged))
            claim = self.keys.claim(key, wish.call, self._what_of)
            if claim.verdict is not Verdict.RUN:
                return self._again(claim, submit)
            wish.claim = claim
        ruling = self._ruling(judged, run)  # behind the key: an answer that is there is given at any time
        self._check_daemon(judged)
        call = self._new_call(wish, judged)
        if run is not None:
            return self._in_run(call, run, args_fp, ruling, submit)
        call.asks = self._approvals.questions.question(submit, judged, uid, ruling, args_fp)
        return call

    def _new_call(self, wish: _Wish, judged: Judged) -> LiveCall:
        if wish.claim is not None:
            key = wish.claim.key
            call = LiveCall(wish.call, wish.uid, key.downstream, judged, wish.now_ns, key)
        else:
            call = LiveCall(wish.call, wish.uid, _key_of(wish.call, wish.uid, judged), judged, wish.now_ns)
        call.fingerprint = wish.args_fp[:SHOWN]
        if judged.unfenced:
            call.notices.append(Notice("fence_stripped", "info", _UNFENCED))
        return call

    def _ruling(self, judged: Judged, run: LiveRun | None) -> Ruling:
        try:
            return self._approvals.questions.ruling(judged)
        except Refusal as refusal:
            if run is not None:
                self._judgement.denied(run, refusal)
            raise

    def _judge(self, wish: _Wish) -> Judged:
        run = wish.run
        try:
            judged = judge(wish.submit, self._tools, self._host, wish.now_ns)
        except Refusal as refusal:
            if run is not None:
                self._judgement.misfit(run, refusal)
            raise
        if run is None:
            return judged
        judged.cwd = judged.cwd or run.spec.workspace
        return _within(judged, run.machine.work_until_ns, wish.now_ns)

    def _in_run(self, call: LiveCall, run: LiveRun, args_fp: str, ruling: Ruling, submit: Submit) -> LiveCall:
        """The same thing that changes something, while it is in flight, is the same delivery: one call answers both."""
        call_fp = call_fingerprint(call.judged.tool, args_fp)
        twin = run.doing.get(situation(call_fp, run.state_version)) if run.doing else None
        if twin is not None:
            if call.claim is not None:  # its delivery key stands for that one
                self.keys.recall(call.claim.place, call.claim.said, twin.id)
            return twin
        call.call_fp = call_fp
        look = self._judgement.look(run, call.judged, call_fp)
        call.notices += look.notices
        try:
            wanted = run.effective.approval
            call.asks = self._approvals.questions.question(submit, call.judged, call.uid, ruling, args_fp, wanted)
        except Refusal:
            self._judgement.let_go(run)
            raise
        if call.asks is None:
            call.stake = self._judgement.enter(look, call)
        else:
            self._judgement.asks(look, call)
        if call.claim is None and not call.judged.contract.read_only:
            call.key = self._decision_key(call, run, args_fp)
        return call

    def _decision_key(self, call: LiveCall, run: LiveRun, args_fp: str) -> str:
        tool = self._tools.get(call.judged.tool)
        assert tool is not None
        contract = bytes.fromhex(tool.form.contract_hash)
        where = (run.spec.tenant, run.id, run.step, run.index)
        return idempotency_key(*where, call.judged.tool, contract, bytes.fromhex(args_fp))

    def _fingerprint(self, judged: Judged, run: LiveRun | None) -> str:
        tool = self._tools.get(judged.tool)
        assert tool is not None
        key = self._secret_key if run is None else run.spec.secret_key
        around = Surroundings(judged.cwd or "", self._home, key)
        real = {text: os.path.realpath(path) for text, path in paths_to_resolve(tool, judged.values, around).items()}
        return args_fingerprint(tool, judged.values, around._replace(real_paths=real))

    def recall(self, recovered: Recovered) -> None:
        """Delivery keys of the last life are taken."""
        for key in recovered.keys:
            self.keys.recall(key.place, key.said, key.call)

    def find(self, call_id: str) -> LiveCall | KeptCall | None:
        """A live or kept call, or one that waits for a person."""
        return self._live.get(call_id) or self._settlement.kept(call_id) or self._approvals.kept(call_id)

    def _check_daemon(self, judged: Judged) -> None:
        """Raises Refusal while the daemon takes no call, or not this one; while nothing can be made durable, what it is
        about to do could not be."""
        self._gate.check()
        if self._journal.refuses:
            raise Refusal(Reason.STORE_UNAVAILABLE, self._journal.trouble or "the journal takes nothing")
        self._gate.check_call(judged)

    def _refused(self, wish: _Wish, refusal: Refusal) -> LiveCall:
        submit, now = wish.submit, wish.now_ns
        judged = Judged(submit.tool, NO_CONTRACT, "", "", now, 0, 0, run=submit.run, decision=submit.decision)
        call = LiveCall(wish.call, wish.uid, wish.call, judged, now)
        call.notices, call.fingerprint = refusal.notices, wish.args_fp[:SHOWN]
        status = Status.CANCELLED if refusal.reason is Reason.SHUTDOWN else refusal.status
        why = (refusal.reason, Delivery.NOT_DELIVERED, now)
        self._settlement.refuse(call, machine.Settle(status, *why, detail=str(refusal), passes=refusal.passes))
        return call

    def _what_of(self, call_id: str) -> Earlier:
        """What is known of a call that a delivery key stands for."""
        if call_id in self._live:
            return Earlier.IN_FLIGHT
        kept = self._settlement.kept(call_id) or self._approvals.kept(call_id)
        if kept is not None and self._approvals.binds(kept.result):
            return Earlier.TOLD
        return earlier_of(None if kept is None else kept.result)

    def _again(self, claim: Claim, submit: Submit) -> LiveCall | KeptCall:
        """A key that is known: the call that it stands for answers, or a refusal does, which is raised."""
        if claim.verdict in (Verdict.WAIT, Verdict.REPLAY):
            found = self.find(claim.earlier or "")
            assert found is not None
            return found
        text = f"key {submit.key!r} stands for call {claim.earlier}, " + (
            "whose result is no longer kept; what became of it is in its events"
            if claim.verdict is Verdict.FORGOTTEN
            else "which has another tool, other arguments or another directory"
        )
        raise Refusal(Reason.KEY_CONFLICT, text)


def _said(judged: Judged) -> bytes:
    return said_of(judged.tool, judged.cwd, same_form(judged.values))


def _key_of(call_id: str, uid: int, judged: Judged) -> str:
    """What goes downstream with a call that came under no key. A call outside a run is a run of its own."""
    if judged.contract.read_only:
        return call_id  # it has no effect that somebody could have twice
    return idempotency_key(str(uid), call_id, 0, 0, judged.tool, b"", _said(judged))


def _within(judged: Judged, until_ns: int, now: int) -> Judged:
    """A call in a run gets no more time than the run has left; that clips in silence."""
    if judged.deadline_ns <= until_ns:
        return judged
    left_ms = max(1, (until_ns - now) // NS_PER_MS)
    return msgspec.structs.replace(judged, deadline_ns=until_ns, deadline_ms=left_ms)
