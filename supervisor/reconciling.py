"""Asks the tool that knows what became of a call whose outcome nobody saw: before its result is told, and once more
when a daemon has come to life and finds effects open. Owns when it is asked, with what, and for how long; what its
answer means is `core/reconcile`'s. The question is a call like any other (``<call>.reconcile``), placed like what
follows a kill: it has no place of its own and waits for none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import trio

from protocol import InvalidArguments
from protocol._contracts import Contract
from protocol._deadlines import instant_after
from protocol._events import EventKind
from protocol._outcomes import CallResult, Delivery
from supervisor.clock import now_ns, wall_ms
from supervisor.core.arguments import parse
from supervisor.core.intake import Judged
from supervisor.core.reconcile import Finding, apply, finding_of
from supervisor.core.tools import ServedTool, Tools
from supervisor.doubts import Leave
from supervisor.effects import Effects
from supervisor.journal import effect_rows
from supervisor.journal.effect_rows import EffectRow
from supervisor.journal.journal import Journal
from supervisor.journal.store import StoreError
from supervisor.live_call import LiveCall

_STOPPING_MS = 1_000
_OUTPUT_BYTES = 64 << 10


class Question(NamedTuple):
    """What is asked about: a call, with the text of its arguments."""

    call: str
    uid: int
    run: str | None
    key: str
    arguments: str
    cwd: str | None
    contract: Contract


class Reconciler:
    """``start(call)`` places a call that needs no admission; ``stopping()``: whether there is little time left.
    ``released(place)`` is told of a delivery key whose call was not done."""

    def __init__(
        self,
        tools: Tools,
        effects: Effects,
        journal: Journal,
        start: Callable[[LiveCall], None],
        stopping: Callable[[], bool],
        released: Callable[[bytes], None],
    ) -> None:
        self._tools, self._effects, self._journal = tools, effects, journal
        self._start, self._stopping, self._released = start, stopping, released
        self.leave_to_ask: Callable[[str, str, str], Leave] = lambda _run, _question, _tool: Leave()
        """Whether a run has time, and can pay, for a question to a tool; it has paid, then."""

    def due(self, call: LiveCall, result: CallResult) -> bool:
        """Whether somebody can be asked what became of it. While it is not dead nobody can say that it never will."""
        if call.judged.contract.reconcile is None or not call.has_effect:
            return False
        return result.delivery is Delivery.UNKNOWN and (result.kill is None or result.kill.confirmed)

    async def see_to(self, call: LiveCall, result: CallResult) -> None:
        """Ask, and say in the result what was found out. Bounded by the contract's own time."""
        judged = call.judged
        question = Question(call.id, call.uid, judged.run, call.key, judged.arguments, judged.cwd, judged.contract)
        finding = await self._ask(question)
        apply(finding, result)
        if finding.state != "unknown":
            told = {"tool": judged.tool, "state": finding.state, "asked": _name_of(call.id)}
            self._journal.note(EventKind.EFFECT_RECONCILED, call.id, call.uid, judged.run, **told)

    async def ask_about_open(self) -> None:
        """Ask about every effect that is open now, one after the other: what the last life could not find out."""
        for effect in self._effects.all_open():
            tool = self._tools.get(effect.tool)
            if tool is None or tool.contract.reconcile is None or self._stopping():
                continue
            arguments = await self._arguments_of(effect)
            if arguments is None or not self._effects.is_open(effect.call):
                continue
            question = Question(effect.call, effect.uid, effect.run, effect.key, arguments, None, tool.contract)
            self._found(effect, await self._ask(question))

    async def _arguments_of(self, effect: EffectRow) -> str | None:
        try:
            return await self._journal.read(effect_rows.arguments_of, effect.call)
        except StoreError:
            return None

    def _found(self, effect: EffectRow, finding: Finding) -> None:
        """Of a call whose result was told long ago: that stays as it is, its effect is open no longer."""
        if finding.state == "unknown" or not self._effects.is_open(effect.call):
            return

        def then(_durable: bool) -> None:  # the disk may take it later
            self._effects.over(effect, finding.why)
            if finding.state == effect_rows.NOT_DONE and effect.place is not None:
                self._released(effect.place)

        changes = effect_rows.reconciled(effect, finding.state, finding.why, _name_of(effect.call), wall_ms())
        self._journal.append(changes, then)

    async def _ask(self, question: Question) -> Finding:
        spec = question.contract.reconcile
        assert spec is not None
        tool = self._tools.get(spec.tool)
        if tool is None:
            return Finding("unknown", f"{spec.tool} was to be asked, and is not served")
        leave = Leave() if question.run is None else self.leave_to_ask(question.run, _name_of(question.call), spec.tool)
        if leave.refused is not None:
            return Finding("unknown", f"{spec.tool} was not asked: {leave.refused}")
        now = now_ns()
        timeout_ms = min(spec.timeout_ms, _STOPPING_MS) if self._stopping() else spec.timeout_ms
        deadline_ns = instant_after(now, timeout_ms)
        if leave.until_ns is not None:
            deadline_ns = min(deadline_ns, leave.until_ns)
        try:
            text = _asked_with(tool, question)
        except InvalidArguments as error:
            return Finding("unknown", f"{spec.tool} cannot be asked: {error}")
        judged = Judged(
            spec.tool, tool.contract, tool.flavour, text, deadline_ns, timeout_ms, _OUTPUT_BYTES, cwd=question.cwd
        )
        judged.run = question.run
        return finding_of(spec.tool, await self._answer(question, judged, now))

    async def _answer(self, question: Question, judged: Judged, now: int) -> CallResult:
        told = trio.Event()
        asking = LiveCall(_name_of(question.call), question.uid, question.key, judged, now)
        asking.detached = True
        asking.watchers[self, 0] = lambda _: told.set()
        self._start(asking)
        await told.wait()
        assert asking.result is not None
        return asking.result


def _name_of(call: str) -> str:
    return f"{call}.reconcile"


def _asked_with(tool: ServedTool, question: Question) -> str:
    """The key with the very arguments of the call; with the key alone where the tool takes no more. Raises
    InvalidArguments."""
    key = msgspec.json.encode(question.key).decode()
    whole = f'{{"idempotency_key": {key}, "arguments": {question.arguments}}}'
    try:
        tool.schema.check(parse(whole).values)
    except InvalidArguments:
        alone = f'{{"idempotency_key": {key}}}'
        tool.schema.check(parse(alone).values)
        return alone
    return whole
