"""What is asked for becomes a call, the answer of an earlier one, or a refusal. Owns the names and the delivery keys of
calls, and the order in which a submit is judged: the call itself, its key, the daemon, the disk, its tool.
"""

from __future__ import annotations

import itertools

from protocol._client_messages import Submit
from protocol._outcomes import Delivery, Reason, Status
from supervisor.clock import now_ns
from supervisor.core import call as machine
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
        key = call_id  # never used twice; a client's delivery key takes its place
        claim: Claim | None = None
        try:
            judged = judge(submit, self._tools, self._host, now)
            if submit.key is not None:
                claim = self._keys.claim(submit, uid, call_id, judged.arguments, self._came_to_nothing)
                if claim.earlier is not None:
                    return self._again(call_id, claim, submit, uid, now)
                key = claim.key
            self._gate.check()  # behind the key: an answer that is there is given at any time
            self._check_journal()
            self._gate.check_call(judged)
        except Refusal as refusal:
            return self._refused(call_id, uid, submit, refusal, now)
        return LiveCall(call_id, uid, key, judged, now, claim)

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

    def _came_to_nothing(self, call_id: str) -> bool:
        """Whether a call did not run and may be sent again under its key. One that somebody cancelled is not wanted;
        one that only a stop of the daemon ended is."""
        kept = self._settlement.kept(call_id)
        if kept is None:
            return False
        result = kept.result
        if result.status is Status.CANCELLED and result.reason is not Reason.SHUTDOWN:
            return False
        return result.delivery is Delivery.NOT_DELIVERED

    def _again(self, call_id: str, claim: Claim, submit: Submit, uid: int, now: int) -> LiveCall | KeptCall:
        """The same delivery key: the same call answers, or a conflict does."""
        earlier = claim.earlier or ""
        found = self.find(earlier)
        if found is not None and claim.same:
            return found
        text = f"key {submit.key!r} stands for call {earlier}, " + (
            "whose result is no longer kept" if claim.same else "which has another tool or other arguments"
        )
        return self._refused(call_id, uid, submit, Refusal(Reason.KEY_CONFLICT, text), now)
