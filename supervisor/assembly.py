"""What a daemon is made of: builds the parts from a configuration and ties them together. Starts nothing."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from protocol._contracts import IsolationLevel, Limits
from protocol._deadlines import NS_PER_MS
from supervisor.calls import Calls
from supervisor.config import Config
from supervisor.containment.cgroups import ControlGroups
from supervisor.containment.killer import KillerLink
from supervisor.containment.pool import Pool, PoolSettings
from supervisor.containment.second_line import SecondLine
from supervisor.containment.slots import Slots
from supervisor.containment.table import DeadlineTable
from supervisor.containment.zygote import ZygoteLink
from supervisor.core.admission import Admission
from supervisor.core.intake import Host
from supervisor.core.levels import HeldBy, holder_of
from supervisor.core.respawn import Respawn, pool_breaker
from supervisor.core.shelf import Shelf
from supervisor.core.tools import Tools
from supervisor.desk import Desk
from supervisor.doors.connection import DoorLimits
from supervisor.doors.refusals import Refusals
from supervisor.doors.unix import UnixDoor
from supervisor.endings import Endings
from supervisor.health import Health
from supervisor.journal.journal import Journal
from supervisor.journal.outputs import OutputStore
from supervisor.journal.store import Store
from supervisor.lives import LifeRecords
from supervisor.readers import EventReaders
from supervisor.runtime import StateDirectory
from supervisor.zygote_options import flavours_of

_PROCESSES_PER_CALL = 4


@dataclass(slots=True)
class Parts:
    """A daemon, assembled and not started."""

    host: Host
    state: StateDirectory
    groups: ControlGroups
    table: DeadlineTable
    killer: KillerLink
    second_line: SecondLine
    zygotes: dict[str, ZygoteLink]
    pools: dict[str, Pool]
    make_zygote: Callable[[str, str, HeldBy], ZygoteLink]
    make_pool: Callable[[str, str, Limits, int, IsolationLevel], Pool]
    tools: Tools
    calls: Calls
    endings: Endings
    journal: Journal
    readers: EventReaders
    door: UnixDoor


def assemble(config: Config, socket_path: str, state: StateDirectory, groups: ControlGroups, store: Store) -> Parts:
    """Everything but the loop. ``state``, ``groups`` and ``store`` are open."""
    settings = config.daemon
    flavours = flavours_of(config)
    most = settings.in_flight + settings.spares + 1
    table = DeadlineTable(most * len(flavours))
    tools = Tools()
    host = Host("group", "none", config.limits, wanted=settings.isolation)  # until more is proven
    journal = Journal(store)
    shelf = Shelf(settings.output_quota_bytes, settings.output_ttl_ms)
    endings = Endings(OutputStore(state.outputs), shelf, settings.result_ttl_ms, journal)
    killer = KillerLink(table)
    admission = Admission(settings.in_flight, settings.queue)
    # Never the name of a call of an earlier life, and hardly that of another daemon's.
    boot = f"{secrets.token_hex(2)}{store.life:03x}"
    records = LifeRecords(journal, store.life)
    calls = Calls(boot, host, tools, endings, admission, killer, journal, records, config.quarantine)
    second_line = SecondLine(calls.workers, killer, settings.confirm_budget_ms * NS_PER_MS, calls.unconfirmed_death)
    killer.on_change = [second_line.look_now, calls.killer_changed]
    zygotes: dict[str, ZygoteLink] = {}
    numbers, slots, breaker = itertools.count(1), Slots(table.slots), pool_breaker(config.restart)

    def make_zygote(flavour: str, name: str, held_by: HeldBy) -> ZygoteLink:
        zygotes[name] = ZygoteLink(flavours[flavour], held_by)
        return zygotes[name]

    def make_pool(flavour: str, zygote: str, limits: Limits, spares: int, isolation: IsolationLevel) -> Pool:
        pool = Pool(
            flavour,
            _pool_settings(config, limits, most, spares),
            zygotes[zygote],
            killer,
            table,
            second_line,
            groups,
            state.work,
            numbers,
            slots,
            Respawn(config.restart, breaker),
            calls,
            isolation,
        )
        zygotes[zygote].on_reaped.append(pool.reaped)
        zygotes[zygote].on_lost.append(pool.zygote_lost)
        calls.pools[flavour] = pool
        return pool

    for name in flavours:
        make_zygote(name, name, holder_of(settings.isolation))
        make_pool(name, name, config.limits, settings.spares, settings.isolation)
    health = Health(calls, product_version(), host, groups.why_not, settings.frame_limit, killer, journal)
    readers = EventReaders(journal)
    desk = Desk(calls, tools, health, readers, _effective(config, socket_path))
    door = UnixDoor(
        desk,
        _door_limits(config),
        lambda: {link.pid for link in zygotes.values() if link.pid},
        Refusals(journal.note),
    )
    return Parts(
        host,
        state,
        groups,
        table,
        killer,
        second_line,
        zygotes,
        calls.pools,
        make_zygote,
        make_pool,
        tools,
        calls,
        endings,
        journal,
        readers,
        door,
    )


def _door_limits(config: Config) -> DoorLimits:
    settings = config.daemon
    return DoorLimits(
        frame=settings.frame_limit,
        hello_s=settings.hello_timeout_ms / 1e3,
        frame_s=settings.frame_timeout_ms / 1e3,
        clients=settings.clients,
        clients_of_another_uid=max(1, settings.clients // 2),
        allow_gids=frozenset(settings.allow_gids),
    )


def product_version() -> str:
    """The installed version."""
    try:
        return version("deadlined")
    except PackageNotFoundError:
        return "0+unknown"


def _effective(config: Config, socket_path: str) -> tuple[dict[str, Any], dict[str, str]]:
    values, sources = config.effective()
    if values["daemon"]["socket"] != socket_path:
        values["daemon"]["socket"] = socket_path
        sources["daemon.socket"] = "--socket or DEADLINED_SOCKET"
    return values, sources


def _pool_settings(config: Config, limits: Limits, most: int, spares: int) -> PoolSettings:
    settings = config.daemon
    # RLIMIT_NPROC counts every process of the uid in the user namespace, so it must leave room for all workers.
    of_uid = None if os.geteuid() == 0 or limits.pids is None else limits.pids + _PROCESSES_PER_CALL * most
    return PoolSettings(most, spares, settings.idle_worker_ms, settings.frame_limit, limits, of_uid)
