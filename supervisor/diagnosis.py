"""What this host can contain, found out by doing it: at each level a worker of its own, a throw-away tree, a real kill.

Owns the trial of one level and what is said of it. Needs no daemon and leaves nothing: directories, groups, processes
are its own and go with it. Which level a daemon would choose is `workforce.py`'s; here it is the first that worked.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator

import msgspec
import trio

from protocol._contracts import CONTAINMENT_ORDER, ContainmentLevel, IsolationLevel
from protocol._deadlines import NS_PER_MS
from protocol._worker_messages import FromWorker
from supervisor.clock import now_ns
from supervisor.config import Config
from supervisor.containment.cgroups import ControlGroups
from supervisor.containment.killer import KillerLink
from supervisor.containment.pool import Pool, PoolSettings
from supervisor.containment.probe import ProbeFailed, prove
from supervisor.containment.second_line import SecondLine
from supervisor.containment.slots import Slots
from supervisor.containment.table import DeadlineTable
from supervisor.containment.workers import Worker
from supervisor.containment.zygote import SpawnError, ZygoteLink
from supervisor.core.levels import HeldBy
from supervisor.core.respawn import Cause, Respawn
from supervisor.zygote_options import BARE, flavours_of

_BUDGET_S = 15.0
_CONFIRM_NS = 1_000 * NS_PER_MS
_HOLDERS: dict[ContainmentLevel, tuple[HeldBy, bool]] = {
    "pidns+cgroup": ("namespaces", True),
    "pidns": ("namespaces", False),
    "cgroup": ("guards", True),
    "subreaper": ("guards", False),
    "group": ("guards", False),
}
"""What holds the workers at a level, and whether they have a control group that can be killed."""


class LevelReport(msgspec.Struct):
    """One level. ``killed``: processes of the tree, all seen dead; ``missing``: what its workers could not have."""

    level: ContainmentLevel
    works: bool
    why: str = ""
    killed: int = 0
    took_ms: float | None = None
    missing: list[str] = []


class Diagnosis(msgspec.Struct):
    """``reached``: the best level that worked; None: none did. ``limits``: controllers that bind, by their version."""

    reached: ContainmentLevel | None
    isolation: IsolationLevel
    levels: list[LevelReport]
    limits: dict[str, str]
    why_no_groups: list[str]
    kernel: str
    uid: int


async def diagnose() -> Diagnosis:
    """Try every level, the best first. Takes a second or two. What the helpers say goes to stderr."""
    groups, numbers = ControlGroups(), itertools.count(1)
    groups.open()
    try:
        levels: list[LevelReport] = []
        for level in reversed(CONTAINMENT_ORDER):
            levels.append(await _level(level, groups, numbers, levels))
        reached = next((report.level for report in levels if report.works), None)
        contains = reached is not None and reached.startswith("pidns")
        return Diagnosis(
            reached,
            "contain" if contains else "limits",
            levels,
            groups.controllers,
            groups.why_not,
            os.uname().release,
            os.geteuid(),
        )
    finally:
        groups.close()


async def _level(
    level: ContainmentLevel, groups: ControlGroups, numbers: Iterator[int], before: list[LevelReport]
) -> LevelReport:
    held_by, in_group = _HOLDERS[level]
    if level == "group" and before[-1].works:
        return LevelReport(level, True, "subreaper does the same, and more", missing=before[-1].missing)
    if in_group and not groups.can_kill:
        return LevelReport(level, False, "; ".join(groups.why_not) or "no control group can be killed here")
    with tempfile.TemporaryDirectory(prefix="deadlined-doctor-") as directory:
        trial = Trial(held_by, groups if in_group else ControlGroups(), numbers, directory)
        report = await trial.run(level)
    if report.works and trial.reached != level:
        return LevelReport(level, False, "the kernel gives no child subreaper")
    return report


class Trial:
    """A killer, a zygote and one worker at one level."""

    def __init__(self, held_by: HeldBy, groups: ControlGroups, numbers: Iterator[int], directory: str) -> None:
        config = Config()
        self._table = DeadlineTable(2)
        self._killer = KillerLink(self._table)
        self._zygote = ZygoteLink(flavours_of(config)[BARE], held_by, may_fall_back=False)
        self._second_line = SecondLine(self._workers, self._killer, _CONFIRM_NS, lambda _: None)
        settings = PoolSettings(2, 0, 60_000, config.daemon.frame_limit, config.limits, None)
        audience = _Nobody()
        self._pool = Pool(
            BARE,
            settings,
            self._zygote,
            self._killer,
            self._table,
            self._second_line,
            groups,
            directory,
            numbers,
            Slots(2),
            Respawn(),
            audience,
        )
        audience.idle = self._pool.keep  # type: ignore[method-assign]  # the one word of a pool that is acted upon
        self._killer.on_change = [self._second_line.look_now]
        self._zygote.on_reaped.append(self._pool.reaped)
        self._zygote.on_lost.append(self._pool.zygote_lost)
        self.reached = ""

    async def run(self, level: ContainmentLevel) -> LevelReport:
        """Start, kill a tree, stop. Never raises for what the host refuses."""
        report = LevelReport(level, False, f"nothing came of it within {_BUDGET_S:g} s")
        try:
            with trio.move_on_after(_BUDGET_S):
                report = await self._tried(level)
        except* (SpawnError, ProbeFailed, OSError) as errors:
            report = LevelReport(level, False, str(_first(errors)))
        finally:
            self._table.close()
        return report

    async def _tried(self, level: ContainmentLevel) -> LevelReport:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._killer.run)
            nursery.start_soon(self._second_line.run)
            await nursery.start(self._zygote.run)
            await nursery.start(self._pool.run, True)
            self.reached = self._pool.containment
            began_ns = now_ns()
            killed = await prove(self._pool)
            took_ms = round((now_ns() - began_ns) / NS_PER_MS, 1)
            await self._pool.close()
            nursery.cancel_scope.cancel()
        return LevelReport(level, True, "", killed, took_ms, self._pool.isolation.missing)

    def _workers(self) -> list[Worker]:
        return list(self._pool.alive.values())


class _Nobody:
    """The audience of a trial's pool: what becomes of its worker the probe finds out by itself."""

    def heard(self, worker: Worker, message: FromWorker) -> None:
        """Not asked for."""

    def broken(self, worker: Worker, why: str) -> None:
        """Not asked for."""

    def gone(self, worker: Worker) -> None:
        """Not asked for."""

    def spawned(self, worker: Worker) -> None:
        """Not asked for."""

    def ended(self, worker: Worker, cause: Cause) -> None:
        """Not asked for."""

    def idle(self, worker: Worker) -> None:
        """Not asked for; `Trial` keeps it for the probe."""


def _first(errors: BaseException) -> BaseException:
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors
