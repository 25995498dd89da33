"""Runs from one life to the next: those that waited for a person go on waiting, as they were; those that went on when
their daemon died have ended, and what they had used is found in the log.

`read_runs` is blocking and comes before anything can ask; `recall_runs` puts what it found into the new daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from protocol._budgets import Dimension, DimensionView
from protocol._checks import Check
from protocol._runs import AgentOptions, Artefact, FiredDetector, LastAction, RunReason, RunStatus
from supervisor.accounts import MOST_SESSIONS, session_of
from supervisor.clock import now_ns, wall_ms
from supervisor.core import run as machine
from supervisor.core.budget import Level, Node
from supervisor.core.evidence import Evidence
from supervisor.core.profiles import Effective
from supervisor.core.run import RunMachine, State
from supervisor.journal import run_rows
from supervisor.journal.store import Change, Store
from supervisor.live_run import LiveRun, RunSpec
from supervisor.run_views import aborted, spent_on_models
from supervisor.runs import KEPT_RUNS, Runs
from supervisor.waiting_time import waited_ns

_LOST = "the daemon was killed while the run went on"


class RecoveredRuns(NamedTuple):
    """What the last life left. ``charges``: of each run that was cut off, by its name, what its events say it used;
    ``limits``: what it was given. ``below``: of each run that waits, what those that are part of it have used since it
    was written. ``all_accounts``: whether ``accounts`` are all there are."""

    runs: list[run_rows.RunRow]
    accounts: list[run_rows.AccountRow]
    charges: dict[str, list[run_rows.Charge]]
    limits: dict[str, dict[str, int]]
    below: dict[str, dict[str, int]]
    all_accounts: bool = True


def read_runs(store: Store) -> RecoveredRuns:
    """Everything that is known of runs. Blocking. Raises StoreError."""
    found = run_rows.read_runs(store, KEPT_RUNS)
    cut_off = [row.id for row in found if row.state == run_rows.OPEN]
    charges = {run: run_rows.read_charges(store, run) for run in cut_off}
    limits = {run: run_rows.read_limits(store, run) for run in cut_off}
    parts = run_rows.read_parts(store)
    below = {row.id: _used_below(store, row.id, parts) for row in found if _waits(row) and row.id in parts}
    in_use = [session_of(row.uid, row.spec["session"]) for row in found if row.state != run_rows.SETTLED]
    accounts = run_rows.read_accounts(store, MOST_SESSIONS, map(str, in_use))
    return RecoveredRuns(found, accounts, charges, limits, below, len(accounts) == run_rows.count_accounts(store))


def _used_below(store: Store, run: str, parts: dict[str, list[str]]) -> dict[str, int]:
    """A run that waits was written when it was suspended; what is part of it may have gone on."""
    since, used = run_rows.suspended_at(store, run), dict[str, int]()
    for part in _parts_of(run, parts):
        for name, change in run_rows.total(run_rows.read_charges(store, part), since).items():
            used[name] = used.get(name, 0) + change
    return used


def _parts_of(run: str, parts: dict[str, list[str]]) -> Iterator[str]:
    for part in parts.get(run, ()):
        yield part
        yield from _parts_of(part, parts)


def recall_runs(runs: Runs, recovered: RecoveredRuns) -> None:
    """Put the runs of earlier lives into this one. What is settled here is on the disk with the next commit, and if
    that never comes, by the next life."""
    runs.accounts.recall(recovered.accounts, recovered.all_accounts)
    waiting = [row for row in recovered.runs if _waits(row)]
    for row in recovered.runs:
        if not _waits(row):
            run = _ended(runs, row, _spec(row.spec))
            if row.state == run_rows.OPEN:
                _end_lost(runs, run, recovered)
            runs.keep(run)
    for row in sorted(waiting, key=lambda row: (row.opened_ms, row.id)):  # what is part of a run comes after it
        _revive(runs, row, recovered.below.get(row.id, {}))


def _waits(row: run_rows.RunRow) -> bool:
    return row.state == run_rows.WAITING and row.snapshot is not None


def _revive(runs: Runs, row: run_rows.RunRow, below: dict[str, int]) -> None:
    run = _revived(runs, row, _spec(row.spec), below)
    runs.keep(run)
    if run.spec.parent is not None and runs.going(run.spec.parent) is None:
        runs.stop(run, RunStatus.CANCELLED, RunReason.PARENT, "the run it is part of did not outlive its daemon")


def _spec(plain: dict[str, Any]) -> RunSpec:
    values = {**plain, "secret_key": bytes.fromhex(plain["secret_key"])}
    values["checks"] = msgspec.convert(plain["checks"], tuple[Check, ...])
    values["agent"] = msgspec.convert(plain.get("agent"), AgentOptions | None)
    return RunSpec(**values)


def _ended(runs: Runs, row: run_rows.RunRow, spec: RunSpec) -> LiveRun:
    """Nothing but a record, in the shape of a run."""
    effective = runs.accounts.budgets.effective(spec.uid, None, {})
    assert isinstance(effective, Effective), "a tenant's own profile with no wishes meets no objection"
    over = RunMachine(0)
    over.state = State.SETTLED
    run = LiveRun(spec, effective, Node(Level.RUN, spec.id), over, runs.detectors_of(effective), 0)
    run.stop = row.stop
    if row.stop is not None:
        run.step = row.stop.step
    return run


def _end_lost(runs: Runs, run: LiveRun, recovered: RecoveredRuns) -> None:
    spec, charges = run.spec, recovered.charges.get(run.id, [])
    used = run_rows.total(charges)
    run.step = used.get("steps", 0)
    elapsed = max(0, min(spec.deadline_ms, wall_ms() - spec.opened_ms))
    stop = aborted(RunReason.RECOVERED_AFTER_CRASH, _LOST, run.id, spec.deadline_ms, elapsed, run.step)
    stop.budgets = dict(_stood(recovered.limits.get(run.id, {}), used))
    stop.unresolved_effects = runs.open_effects(run.id)
    run.stop = stop
    told = {"status": stop.status, "reason": stop.reason, "step": run.step, "used": used, "profile": spec.profile}
    told |= spent_on_models(used)
    changes: tuple[Change, ...] = run_rows.settled(run.id, spec.uid, stop, wall_ms(), told)
    spent = runs.accounts.spent_by_lost_run(spec.uid, spec.session, charges)
    runs.journal.append((*changes, *spent))


def _stood(limits: dict[str, int], used: dict[str, int]) -> Iterator[tuple[str, DimensionView]]:
    """How the budget of a run stood when it was cut off. (Of time its deadline says it.)"""
    for name in sorted({*limits, *used} - {Dimension.WALL_MS}):
        spent, limit = used.get(name, 0), limits.get(name)
        yield name, DimensionView(limit, spent, 0, None if limit is None else max(0, limit - spent))


def _revived(runs: Runs, row: run_rows.RunRow, spec: RunSpec, below: dict[str, int]) -> LiveRun:
    """A run that waits, with everything it had counted."""
    assert row.snapshot is not None
    kept, now = row.snapshot, now_ns()
    used = kept["ledger"]["used"]
    used |= {name: used.get(name, 0) + more for name, more in below.items()}
    effective = msgspec.convert(kept["effective"], Effective)
    detectors = runs.detectors_of(effective)
    detectors.load(kept["detectors"])
    waited = 0 if runs.pauses else waited_ns(kept.get("since"))
    remaining = max(0, kept["remaining_ns"] - waited)
    run_machine = runs.machine_of(spec, effective, now + remaining)
    waits = kept["waits"]
    waits_for = machine.Waited(RunStatus(waits["status"]), RunReason(waits["reason"]), now, waits["detail"])
    confirming = msgspec.convert(kept.get("confirming"), machine.Confirming | None)
    run_machine.revive(remaining, waits_for, kept["refusals"], confirming)
    above = None if spec.parent is None else runs.going(spec.parent)
    node = runs.accounts.revive_run(
        spec.id, spec.uid, spec.session, None if above is None else above.node, kept["ledger"]
    )
    run = LiveRun(spec, effective, node, run_machine, detectors, now)
    for name in ("elapsed_ns", "step", "step_is_open", "step_is_asked", "step_is_used", "index", "calls"):
        setattr(run, name, kept[name])
    run.elapsed_ns += waited
    run.reservations, run.retries = kept.get("reservations", 0), kept.get("retries", 0)
    run.state_version, run.asked_people = kept["state_version"], kept["asked_people"]
    run.approvals = set(kept["approvals"])
    run.fired.extend(msgspec.convert(kept["fired"], list[FiredDetector]))
    run.partial.extend(kept["partial"])
    run.artefacts.extend(msgspec.convert(kept["artefacts"], list[Artefact]))
    run.notes, run.refused = kept.get("notes", ""), kept.get("refused")
    if run.evidence is not None:
        run.evidence = Evidence(kept["evidence"])
    run.last = msgspec.convert(kept["last"], LastAction | None)
    run.stop = row.stop
    return run
