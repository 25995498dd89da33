"""What is asked for becomes a call, the answer of an earlier one, or a refusal. Owns the names and the delivery keys of
calls, and the order in which a submit is judged: the call itself, its key, the daemon, the disk, its tool.
"""

from __future__ import annotations

import itertools

from protocol._client_messages import Submit
from protocol._outcomes import Delivery, Reason, Status
from supervisor.clock import now_ns
from supervisor.core import call as machine
from supervisor.core.arguments import same_form
from supervisor.core.idempotency import (
    Earlier,
    Verdict,
    delivery_key,
    earlier_of,
    idempotency_key,
    said_of,
)
from supervisor.core.intake import NO_CONTRACT, Host, Judged, Refusal, judge
from supervisor.core.tools import Tools
from supervisor.gate import Gate
from supervisor.journal.journal import Journal
from supervisor.journal.recovery import Recovered
from supervisor.journal.results import KeptCall
from supervisor.keys import Claim, Keys
from supervisor.live_call import LiveCall
from supervisor.settlement import Settlement


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
    ) -> None:
        self._boot, self._host, self._tools = boot, host, tools
        self._gate, self._journal, self._settlement, self._live = gate, journal, settlement, live
        self._numbers = itertools.count(1)
        self._keys = Keys()

    def take(self, submit: Submit, uid: int) -> LiveCall | KeptCall:
        """A new call that nothing has been done for, or one that answers already: refused, in flight, or kept."""
        now = now_ns()
        call_id = f"c_{self._boot}{next(self._numbers):06x}"
        claim: Claim | None = None
        try:
            judged = judge(submit, self._tools, self._host, now)
            if submit.key is not None:
                key = delivery_key(uid, judged.run, submit.key, _said(judged))
                claim = self._keys.claim(key, call_id, self._what_of)
                if claim.verdict is not Verdict.RUN:
                    return self._again(call_id, claim, submit, uid, now)
            self._gate.check()  # behind the key: an answer that is there is given at any time
            self._check_journal()
            self._gate.check_call(judged)
        except Refusal as refusal:
            if claim is not None:  # nothing was begun: the key is as new
                self._keys.release(claim.key.place)
            return self._refused(call_id, uid, submit, refusal, now)
        if claim is not None:
            return LiveCall(call_id, uid, claim.key.downstream, judged, now, claim.key)
        return LiveCall(call_id, uid, _key_of(call_id, uid, judged), judged, now)

    def recall(self, recovered: Recovered) -> None:
        """Delivery keys of the last life are taken."""
        for key in recovered.keys:
            self._keys.recall(key.place, key.said, key.call)

    def find(self, call_id: str) -> LiveCall | KeptCall | None:
        """A live or kept call."""
        return self._live.get(call_id) or self._settlement.kept(call_id)

    def _check_journal(self) -> None:
        """Raises Refusal while nothing can be made durable: what a call is about to do could not be."""
        if self._journal.refuses:
            raise Refusal(Reason.STORE_UNAVAILABLE, self._journal.trouble or "the journal takes nothing")

    def _refused(self, call_id: str, uid: int, submit: Submit, refusal: Refusal, now: int) -> LiveCall:
        judged = Judged(submit.tool, NO_CONTRACT, "", "", now, 0, 0, run=submit.run)
        call = LiveCall(call_id, uid, call_id, judged, now)
        status = Status.CANCELLED if refusal.reason is Reason.SHUTDOWN else Status.NOT_EXECUTED
        self._settlement.refuse(
            call, machine.Settle(status, refusal.reason, Delivery.NOT_DELIVERED, now, detail=str(refusal))
        )
        return call

    def _what_of(self, call_id: str) -> Earlier:
        """What is known of a call that a delivery key stands for."""
        if call_id in self._live:
            return Earlier.IN_FLIGHT
        kept = self._settlement.kept(call_id)
        return earlier_of(None if kept is None else kept.result)

    def _again(self, call_id: str, claim: Claim, submit: Submit, uid: int, now: int) -> LiveCall | KeptCall:
        """A key that is known: the call that it stands for answers, or a refusal does."""
        if claim.verdict in (Verdict.WAIT, Verdict.REPLAY):
            found = self.find(claim.earlier or "")
            assert found is not None
            return found
        text = f"key {submit.key!r} stands for call {claim.earlier}, " + (
            "whose result is no longer kept; what became of it is in its events"
            if claim.verdict is Verdict.FORGOTTEN
            else "which has another tool, other arguments or another directory"
        )
        return self._refused(call_id, uid, submit, Refusal(Reason.KEY_CONFLICT, text), now)


def _said(judged: Judged) -> bytes:
    return said_of(judged.tool, judged.cwd, same_form(judged.values))


def _key_of(call_id: str, uid: int, judged: Judged) -> str:
    """What goes downstream with a call that came under no key. A call outside a run is a run of its own."""
    if judged.contract.read_only:
        return call_id  # it has no effect that somebody could have twice
    return idempotency_key(str(uid), call_id, 0, 0, judged.tool, b"", _said(judged))
