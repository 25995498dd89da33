"""A run as it is shown: while it goes on, in a list, when it stops, and whole, for another life. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import msgspec

from protocol._budgets import Dimension
from protocol._deadlines import NS_PER_MS, elapsed_ms
from protocol._runs import OpenEffect, Phase, RunDeadline, RunReason, RunRow, RunStatus, RunView, StopRecord
from supervisor.clock import wall_ms
from supervisor.core import stop_records as words
from supervisor.core.budget import Ledger
from supervisor.core.call import State as CallState
from supervisor.core.run import Settle, Suspend
from supervisor.live_run import LiveRun
from supervisor.waiting_time import since

_GOAL_LISTED = 200
_DETAIL = 4_000
EFFECTS_LISTED = 100
"""Of a stop, the newest: the whole of it fits into an answer. `list_effects` has them all."""


def status_of(run: LiveRun) -> RunStatus:
    """In a word, as the disk has it."""
    return run.stop.status if run.stop is not None else RunStatus.RUNNING


def phase_of(run: LiveRun) -> Phase:
    """What it does; while all of its calls wait for the same, that."""
    phase = run.machine.phase
    if phase == "tool" and not run.in_flight:
        phase = "decide"  # a call is being judged
    if phase == "decide" and run.retry_waits:
        return "backoff"
    if phase != "tool":
        return phase
    states = {call.machine.state for call in run.in_flight.values()}
    if states == {CallState.BACKOFF}:
        return "backoff"
    return "queue" if states == {CallState.WAITING} else phase


def deadline_of(run: LiveRun, now_ns: int) -> RunDeadline:
    """Its time as it stands."""
    elapsed_ns = run.elapsed(now_ns)
    over_ns = max(0, elapsed_ns - run.spec.deadline_ms * NS_PER_MS)
    return RunDeadline(
        run.spec.deadline_ms,
        elapsed_ms(0, elapsed_ns),
        run.machine.remaining_ns(now_ns) // NS_PER_MS,
        elapsed_ms(0, over_ns) if over_ns else 0,
    )


def view_of(run: LiveRun, ledger: Ledger, now_ns: int) -> RunView:
    """A run as it stands."""
    spec, effective = run.spec, run.effective
    stop = run.stop or run.ending
    return RunView(
        run.id,
        spec.uid,
        status_of(run),
        spec.goal,
        spec.profile,
        effective.detectors,
        spec.tenant,
        spec.session,
        spec.parent,
        spec.workspace,
        spec.on_disconnect,
        spec.opened_ms,
        run.step,
        (stop.phase if _is_over(stop) else None) or phase_of(run),
        run.calls,
        len(run.in_flight),
        run.state_version,
        run.stop.deadline if _is_over(run.stop) else deadline_of(run, now_ns),
        ledger.view(run.node) if run.node in ledger else (stop.budgets if stop else {}),
        effective.sources,
        ledger.record(run.node, run.machine.deadline_ns, now_ns) if run.node in ledger else None,
        list(spec.checks),
        sorted(run.approvals),
        list(run.fired),
        run.stop,
        spec.agent,
        run.refused,
    )


def _is_over(stop: StopRecord | None) -> TypeGuard[StopRecord]:
    """Of one that waits the time may go on."""
    return stop is not None and not stop.resumable


def row_of(run: LiveRun, now_ns: int) -> RunRow:
    """A run in a list."""
    spec, stop = run.spec, run.stop
    left = stop.deadline.remaining_ms if _is_over(stop) else run.machine.remaining_ns(now_ns) // NS_PER_MS
    reason = None if stop is None else stop.reason
    goal = spec.goal if len(spec.goal) <= _GOAL_LISTED else spec.goal[:_GOAL_LISTED] + "…"
    return RunRow(run.id, status_of(run), reason, spec.profile, goal, run.step, run.calls, left, spec.opened_ms)


def stop_of(
    run: LiveRun, ledger: Ledger, effect: Settle | Suspend, effects: list[OpenEffect], now_ns: int
) -> StopRecord:
    """Why it stopped. ``effects``: calls of it that may have changed something and nobody knows."""
    budgets = ledger.view(run.node)
    deadline = deadline_of(run, now_ns)
    detail = effect.detail if len(effect.detail) <= _DETAIL else effect.detail[:_DETAIL] + "…"
    elapsed_ns = deadline.elapsed_ms * NS_PER_MS
    facts = (effect.status, effect.reason, effect.phase, run.step, detail, elapsed_ns, budgets, len(effects))
    return StopRecord(
        run.id,
        words.outcome_of(effect.status),
        effect.status,
        effect.reason,
        effect.phase,
        run.step,
        detail,
        words.sentence(*facts),
        words.advice_of(effect.status, effect.reason),
        isinstance(effect, Suspend),
        deadline,
        budgets,
        list(run.fired),
        run.last,
        effects[-EFFECTS_LISTED:],
        [words.line_of(one) for one in run.partial],
        list(run.artefacts),
        sorted(run.approvals),
        effect.answer,
        words.code_for(effect.reason),
        wall_ms(),
        max(0, len(effects) - EFFECTS_LISTED),
        fields=effect.fields,
    )


def told_at_end(run: LiveRun, stop: StopRecord) -> dict[str, Any]:
    """What the log says of a stop."""
    used = {name: view.used for name, view in stop.budgets.items() if view.used}
    return {
        "status": stop.status,
        "reason": stop.reason,
        "phase": stop.phase,
        "step": stop.step,
        "calls": run.calls,
        "deadline_ms": stop.deadline.deadline_ms,
        "elapsed_ms": stop.deadline.elapsed_ms,
        "overrun_ms": stop.deadline.overrun_ms,
        "profile": run.spec.profile,
        "human": run.asked_people,
        "used": used,
        "limits": {name: view.limit for name, view in stop.budgets.items() if view.limit is not None},
        "unresolved_effects": len(stop.unresolved_effects) + stop.effects_left_out,
        "detail": stop.detail,
        **spent_on_models(used),
    }


def spent_on_models(used: Mapping[str, int]) -> dict[str, int]:
    """What the log says of it at the end of every run, of a lost one too."""
    spent = (Dimension.TOKENS_IN, Dimension.TOKENS_OUT, Dimension.COST_MICROS)
    return {str(name): used.get(name, 0) for name in spent}


def told_at_start(run: LiveRun) -> dict[str, Any]:
    """What the log says of a run that begins: all that was decided about it."""
    spec, effective = run.spec, run.effective
    return {
        "goal": spec.goal,
        "profile": spec.profile,
        "tenant": spec.tenant,
        "session": spec.session,
        "parent": spec.parent,
        "deadline_ms": spec.deadline_ms,
        "limits": {name: limit for name, limit in effective.limits.items() if limit is not None},
        "sources": effective.sources,
        "detectors": effective.detectors,
        "wrapup": effective.wrapup,
        "checks": list(spec.checks),
        "on_disconnect": spec.on_disconnect,
        "approval": effective.approval,
        "max_refusals": effective.max_refusals,
        "agent": spec.agent,
    }


def snapshot_of(run: LiveRun, ledger: Ledger, effect: Suspend) -> dict[str, Any]:
    """All that a run needs to go on in another life, as plain values."""
    plain: dict[str, Any] = msgspec.to_builtins(
        {
            "effective": run.effective,
            "ledger": ledger.dump(run.node),
            "detectors": run.detectors.dump(),
            "remaining_ns": effect.remaining_ns,
            "elapsed_ns": run.elapsed_ns,
            "since": None if run.machine.pauses else since(run.opened_ns),
            "waits": {"status": effect.status, "reason": effect.reason, "detail": effect.detail},
            "refusals": run.machine.refusals,
            "step": run.step,
            "step_is_open": run.step_is_open,
            "step_is_asked": run.step_is_asked,
            "step_is_used": run.step_is_used,
            "index": run.index,
            "calls": run.calls,
            "reservations": run.reservations,
            "retries": run.retries,
            "state_version": run.state_version,
            "asked_people": run.asked_people,
            "approvals": sorted(run.approvals),
            "fired": list(run.fired),
            "partial": [words.line_of(one) for one in run.partial],
            "artefacts": list(run.artefacts),
            "last": run.last,
            "notes": run.notes,
            "refused": run.refused,
            "confirming": run.machine.confirming,
            "evidence": None if run.evidence is None else run.evidence.dump(),
        }
    )
    return plain


def aborted(reason: RunReason, detail: str, run_id: str, deadline_ms: int, elapsed: int, step: int) -> StopRecord:
    """The stop of a run that a daemon did not live to settle."""
    status = RunStatus.INTERNAL_ERROR
    deadline = RunDeadline(deadline_ms, elapsed, max(0, deadline_ms - elapsed))
    text = words.sentence(status, reason, None, step, detail, elapsed * NS_PER_MS, {}, 0)
    return StopRecord(
        run_id,
        "stopped",
        status,
        reason,
        None,
        step,
        detail,
        text,
        words.advice_of(status, reason),
        resumable=False,
        deadline=deadline,
        budgets={},
        settled_at_ms=wall_ms(),
    )
