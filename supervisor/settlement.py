"""From a call's one settlement to its one telling: the result is made, what it left is taken in, the disk has it if
that was promised, and then everybody hears the same.

Owns that order, and the numbers of calls that were settled and killed. Leaves the words to `core/results`, files to
`endings`, the disk to `intents`. ``over(call)`` is told as soon as a call holds nothing any more, before it is told.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import trio

from protocol._outcomes import CallResult, Isolation, Notice, Reason
from supervisor.aftermath import Aftermath
from supervisor.containment.pool import Pool
from supervisor.containment.workers import Worker
from supervisor.core import call as machine
from supervisor.core import results
from supervisor.core.call_facts import Facts
from supervisor.core.intake import Host
from supervisor.core.redaction import Redaction
from supervisor.core.respawn import Cause
from supervisor.effects import Effects
from supervisor.endings import Endings
from supervisor.intents import Intents
from supervisor.journal.recovery import Recovered
from supervisor.journal.results import KeptCall
from supervisor.judgement import Judgement
from supervisor.live_call import LiveCall
from supervisor.trouble import Trouble

_KILL_CAUSES = {
    Reason.TIME_BUDGET: Cause.DEADLINE_KILL,
    Reason.MEMORY_LIMIT: Cause.OOM,
    Reason.PROTOCOL_ERROR: Cause.PROTOCOL_ERROR,
    Reason.WORKER_LOST: Cause.CRASH,
}
_NO_MECHANISM: list[str] = []


class Settlement:
    """One per daemon. ``live``: the calls that have not been told yet; one that is told leaves it here."""

    def __init__(
        self,
        host: Host,
        pools: Mapping[str, Pool],
        endings: Endings,
        intents: Intents,
        trouble: Trouble,
        aftermath: Aftermath,
        effects: Effects,
        redaction: Redaction,
        live: dict[str, LiveCall],
        over: Callable[[LiveCall], None],
        judgement: Judgement,
    ) -> None:
        self._judgement = judgement
        self._host, self._pools = host, pools
        self._endings, self._intents, self._trouble, self._aftermath = endings, intents, trouble, aftermath
        self._redaction = redaction
        self._effects, self._live, self._over = effects, live, over
        self.settled = self.kills = 0

    def recall(self, recovered: Recovered) -> None:
        """Results of the last life can be asked for again."""
        for kept in recovered.kept:
            self._endings.kept.keep(kept)

    def kept(self, call_id: str) -> KeptCall | None:
        """A call that was told, as long as it is kept."""
        return self._endings.kept.get(call_id)

    def settle(self, call: LiveCall, settle: machine.Settle, nursery: trio.Nursery) -> None:
        """Do what must be done at once; what may take long (files, a hook of its contract) goes on in ``nursery``."""
        result = self._result(call, settle)
        if call.worker is not None and (notice := self.attempt_over(call, settle, call.worker)):
            result.notices.append(notice)
        whole = self._endings.finish_now(call, result)
        if whole and not self._aftermath.due(call, result):
            self._whole(call, result)
        else:
            nursery.start_soon(self._settle_slowly, call, result, whole)

    def attempt_over(self, call: LiveCall, ended: machine.Settle, worker: Worker) -> Notice | None:
        """Count how an attempt ended, its worker with it: once for each, whether or not the call settles with it."""
        if ended.death is not None:
            self.kills += 1
            worker.ended_for = worker.ended_for or _KILL_CAUSES.get(ended.reason or Reason.CLIENT, Cause.CANCEL_KILL)
        return self._trouble.settled(call.judged, ended)

    def _result(self, call: LiveCall, settle: machine.Settle) -> CallResult:
        result = results.result_of(self._facts(call), settle)
        result.fingerprint, result.decision = call.fingerprint, call.judged.decision
        call.reached = "" if settle.ended is None else settle.ended.fingerprint
        result.notices += call.notices
        return result

    def refuse(self, call: LiveCall, settle: machine.Settle) -> None:
        """A call that never was one: its result is there at once, and an event instead of a row."""
        call.result = self._result(call, settle)
        self.settled += 1
        self._endings.kept.keep(self._endings.pack(call, call.result))
        self._intents.refused(call, str(settle.reason), settle.detail)

    async def _settle_slowly(self, call: LiveCall, result: CallResult, whole: bool) -> None:
        """Draining a pipe, moving a directory, making a view: off the loop; the call is told when it is done, and when
        what its contract wants done afterwards is."""
        with trio.CancelScope(shield=True):
            if not whole:
                await self._endings.finish(call, result)
        if self._aftermath.due(call, result):
            await self._aftermath.see_to(call, result)
        self._whole(call, result)

    def _whole(self, call: LiveCall, result: CallResult) -> None:
        """Nothing more will be added. Who waits for it hears when it is on the disk, if that was promised, and at once
        if not."""
        if call.judged.contract.secrets:
            self._redaction.result(result)
        if result.output.truncated:
            self._intents.truncated(call, result)
        if not call.recorded:
            call.tell(result)  # first: who waits for it need not wait for our bookkeeping
        charge = {} if call.stake is None else self._judgement.settled(call.stake, call, result)
        self._effects.settled(call, result)
        if call.recorded:
            result.durable = True
            kept = self._endings.pack(call, result)
            self._intents.settled(call, result, kept, functools.partial(self._tell, call, result, kept), charge)
        else:
            kept = self._endings.pack(call, result)
            self._keep(call, kept)
            self._intents.settled(call, result, kept, None, charge)
        self._over(call)
        if call.stake is not None:
            self._judgement.over(call.stake)
        if call.over is not None:
            call.over(result)

    def _tell(self, call: LiveCall, result: CallResult, kept: KeptCall, durable: bool) -> None:
        if not durable:  # the disk may take this one later
            result.durable = False
            kept = self._endings.pack(call, result)
            self._intents.amended(kept)
        call.tell(result)
        self._keep(call, kept)

    def _keep(self, call: LiveCall, kept: KeptCall) -> None:
        self.settled += 1
        del self._live[call.id]
        assert call.result is not None
        self._endings.settled(call, call.result, kept)

    def _facts(self, call: LiveCall) -> Facts:
        judged = call.judged
        pool = self._pools.get(judged.flavour)
        return Facts(
            call.id,
            judged.tool,
            call.submitted_ns,
            judged.deadline_ns,
            judged.deadline_ms,
            call.machine.began_ns,
            self._host.containment if pool is None else pool.containment,
            Isolation(self._host.wanted, self._host.isolation) if pool is None else pool.isolation,
            _NO_MECHANISM if pool is None else pool.mechanism,
            call.key,
            judged.run,
            judged.contract.read_only,
            judged.contract.remote,
            judged.contract.after_kill is not None,
            call.output_bytes,
            call.silent_ms,
            call.worker is not None and call.worker.calls_served == 1,
            judged.contract.term_grace_ms,
            call.machine.attempts,
            call.approval,
        )
