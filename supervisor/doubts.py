"""What an effect of unknown outcome means for the run it belongs to: the same is not done again until somebody knows,
the run waits for that, and pays for the question to the tool that may know.

Owns no state: which effects are open is `effects`' to say. A run that waits goes on when any of them is known; whatever
else is open holds it up again when it is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol._budgets import Dimension
from protocol._events import EventKind
from protocol._outcomes import Notice, Reason, Status
from protocol._runs import RunReason
from supervisor.clock import now_ns
from supervisor.core import run as machine
from supervisor.core.budget import Refused, call_amounts
from supervisor.core.intake import Judged, Refusal
from supervisor.effects import Effects
from supervisor.journal.effect_rows import EffectRow
from supervisor.live_run import LiveRun
from supervisor.runs import Runs

_AGAIN = "the same is done again although nobody knows what became of it as {}: it may have been done before"
_NOT_AGAIN = (
    "the same was begun as {0}, and nobody knows what became of it: somebody has to look first, and then close that"
    " effect (deadlined effects close {0})"
)
_NOT_ASKED_FOR = (Dimension.BRANCHES, Dimension.OUTPUT_BYTES)


class Leave(NamedTuple):
    """Whether a question may be asked. ``refused``: why not; ``until_ns``: until when its run has time for that."""

    refused: str | None = None
    until_ns: int | None = None


class Doubts:
    """One per daemon."""

    def __init__(self, runs: Runs, effects: Effects) -> None:
        self._runs, self._effects = runs, effects
        effects.heard_of = self._heard_of

    def before(self, run: LiveRun, judged: Judged, call_fp: str) -> list[Notice]:
        """What the submitter of a call is told. Raises Refusal when the run has done the same with an outcome that
        nobody knows, and its contract does not say that it may be done again: the run has to wait, then."""
        contract = judged.contract
        effect = None if contract.read_only else self._effects.unresolved(run.id, call_fp)
        if effect is None:
            return []
        if contract.repeat_after_unknown == "allow" or contract.idempotent:
            return [Notice("repeat_after_unknown", "warn", _AGAIN.format(effect.call))]
        raise Refusal(Reason.RECONCILE_REQUIRED, _NOT_AGAIN.format(effect.call), Status.WAITING_FOR_APPROVAL)

    def leave_to_ask(self, name: str, question: str, tool: str) -> Leave:
        """Charge a question about a call of a run, as any call of the tool that is asked."""
        run = self._runs.going(name)
        if run is None:
            return Leave()
        if run.machine.deadline_ns <= now_ns():
            return Leave("its run has no time left")
        amounts = {kind: amount for kind, amount in call_amounts(tool).items() if kind not in _NOT_ASKED_FOR}
        charge = self._runs.ledger.charge(run.node, amounts)
        if isinstance(charge, Refused):
            return Leave(f"its run has no call left for that ({charge.text})")
        self._runs.note(run, EventKind.CALL_VALIDATED, question, tool=tool, step=run.step, charge=charge)
        return Leave(None, run.machine.deadline_ns)

    def _heard_of(self, effect: EffectRow) -> None:
        """Somebody knows what became of it: if its run waited for that, and for nobody else, it goes on."""
        run = None if effect.run is None else self._runs.going(effect.run)
        if run is None or run.approvals or run.machine.waits_for is not RunReason.RECONCILE_REQUIRED:
            return
        self._runs.feed(run, machine.Answered(now_ns()))
