"""Getting workers at the start: zygotes and pools in order, the tools they bring, and on what ground they stand.

Owns the order, the proof (a throw-away tree really killed in a worker of each zygote), the fall to a lower level where
the proof fails, and the refusal to start below what the configuration demands. Leaves running to the parts themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from protocol._contracts import CONTAINMENT_ORDER, ISOLATION_ORDER, Limits
from supervisor.containment.probe import ProbeFailed, prove
from supervisor.containment.zygote import SpawnError
from supervisor.core.levels import holder_of

_LOG = structlog.get_logger("deadlined.workforce")
if TYPE_CHECKING:
    from supervisor.assembly import Parts
    from supervisor.config import DaemonSettings
    from supervisor.containment.pool import Pool


async def start_workforce(
    parts: Parts, settings: DaemonSettings, limits: Limits, first: str, nursery: trio.Nursery
) -> None:
    """Start every zygote and pool. Raises SpawnError (no worker, no such tool, less than is demanded) or ProbeFailed.

    ``first``: the flavour whose ground is the daemon's own. Afterwards ``parts.host`` says what is reached.
    """
    started: list[Pool] = []
    for name, pool in list(parts.pools.items()):
        await nursery.start(parts.makers.zygotes[name].run)
        await _first_worker(pool, nursery)
        parts.tools.serve(pool.tools, name)
        started.append(pool)
    for flavour, place in parts.tools.set_apart(limits, settings.isolation).items():
        zygote = place.zygote
        if holder_of(place.isolation) != holder_of(settings.isolation):
            zygote = f"{zygote}/{holder_of(place.isolation)}"
            if zygote not in parts.makers.zygotes:
                await nursery.start(parts.makers.zygote(place.zygote, zygote, holder_of(place.isolation)).run)
        pool = parts.makers.pool(flavour, zygote, place.limits, 0, place.isolation)
        await nursery.start(pool.run, False)
        started.append(pool)
    _look_at_secrets(parts)
    if wrong := parts.tools.who_cannot_be_asked():
        raise SpawnError("configuration", "; ".join(wrong))
    await _prove_all(parts, started)
    _note_grounds(parts, first)
    _check_demands(parts, settings)


def _look_at_secrets(parts: Parts) -> None:
    """A tool without its secrets is served, and says at its first call what it needs: it may be the one of many that
    nobody uses here. Whoever reads the log hears it now."""
    for tool in parts.tools.descriptions():
        if missing := parts.calls.environment.look_at(tool.contract):
            parts.host.missing_secrets[tool.name] = missing
            _LOG.warning("tool_needs", tool=tool.name, missing=missing)


async def _first_worker(pool: Pool, nursery: trio.Nursery) -> None:
    """Run the pool until its first worker is ready. A host may give a namespace and then refuse what belongs into it
    (Ubuntu's AppArmor does, to a plain uid): there guards take its place too."""
    failed: BaseException | None = None
    try:
        await nursery.start(pool.run, True)
    except* SpawnError as errors:
        failed = errors
    if failed is None:
        return
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    if pool.zygote.held_by == "guards":
        raise failed
    await pool.zygote.hold_with_guards(f"a worker could not be contained: {failed}")
    await nursery.start(pool.run, True)


async def _prove_all(parts: Parts, pools: list[Pool]) -> None:
    """One kill for each zygote. Where a namespace does not contain what it should, guards take its place."""
    for zygote in parts.makers.zygotes.values():
        pool = next(pool for pool in pools if pool.zygote is zygote)
        try:
            await prove(pool)
        except ProbeFailed as failure:
            if zygote.held_by == "guards":
                raise
            await zygote.hold_with_guards(str(failure))
            await prove(pool)


def _note_grounds(parts: Parts, first: str) -> None:
    host = parts.host
    host.grounds = {flavour: pool.ground for flavour, pool in parts.pools.items()}
    host.containment, host.isolation = host.grounds[first].containment, host.grounds[first].isolation
    for zygote in parts.makers.zygotes.values():
        if zygote.refused is not None and zygote.refused not in parts.groups.why_not:
            parts.groups.why_not.append(zygote.refused)


def _check_demands(parts: Parts, settings: DaemonSettings) -> None:
    """Fail closed when the configuration demands more than this host gives. Raises SpawnError."""
    host = parts.host
    why = "; ".join(parts.groups.why_not)
    level, isolation = settings.min_containment, settings.min_isolation
    if level and CONTAINMENT_ORDER.index(level) > CONTAINMENT_ORDER.index(host.containment):
        raise SpawnError("containment", f"{level} is demanded, {host.containment} is reached ({why})")
    if ISOLATION_ORDER.index(isolation) > ISOLATION_ORDER.index(host.isolation):
        raise SpawnError("containment", f"isolation {isolation} is demanded, {host.isolation} is reached ({why})")
