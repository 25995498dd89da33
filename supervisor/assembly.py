"""What a daemon is made of: builds the parts from a configuration and ties them together. Starts nothing."""

from __future__ import annotations

import itertools
import os
import secrets
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from protocol._contracts import IsolationLevel, Limits
from protocol._deadlines import NS_PER_MS
from supervisor.accounts import Accounts
from supervisor.approvals import Approvals
from supervisor.calls import Calls, Given
from supervisor.config import Config
from supervisor.containment.cgroups import ControlGroups
from supervisor.containment.killer import KillerLink
from supervisor.containment.pool import Pool, PoolSettings
from supervisor.containment.second_line import SecondLine
from supervisor.containment.slots import Slots
from supervisor.containment.table import DeadlineTable
from supervisor.containment.zygote import ZygoteLink
from supervisor.core.admission import Admission
from supervisor.core.detectors import Detectors
from supervisor.core.intake import Host
from supervisor.core.levels import HeldBy, holder_of
from supervisor.core.model_events import Gateway
from supervisor.core.policy import Policy
from supervisor.core.respawn import Respawn, pool_breaker
from supervisor.core.shelf import Shelf
from supervisor.core.tools import Tools
from supervisor.desk import Desk
from supervisor.doors.connection import DoorLimits
from supervisor.doors.refusals import Refusals
from supervisor.doors.unix import UnixDoor
from supervisor.doubts import Doubts
from supervisor.endings import Endings
from supervisor.finishing import Finishing
from supervisor.health import Health
from supervisor.hosting import Hosting
from supervisor.journal.journal import Journal
from supervisor.journal.outputs import OutputStore
from supervisor.journal.store import Store
from supervisor.judgement import Judgement
from supervisor.lives import LifeRecords
from supervisor.observe.desk import MetricsDesk
from supervisor.observe.metrics import Metrics
from supervisor.readers import EventReaders
from supervisor.rounds import Rounds
from supervisor.run_approvals import RunApprovals
from supervisor.run_desk import RunDesk
from supervisor.runs import RunRefusal, Runs
from supervisor.runtime import StateDirectory
from supervisor.zygote_options import flavours_of

_PROCESSES_PER_CALL = 4


class Steering(NamedTuple):
    """What bounds and allows calls: their runs, and the people who are asked."""

    runs: Runs
    rounds: Rounds
    judgement: Judgement
    approvals: Approvals


class Doors(NamedTuple):
    """What clients come through, and those behind it who answer in their own time."""

    readers: EventReaders
    metrics: MetricsDesk
    unix: UnixDoor
    hosting: Hosting


@dataclass(slots=True)
class Parts:
    """A daemon, assembled and not started."""

    host: Host
    state: StateDirectory
    groups: ControlGroups
    table: DeadlineTable
    killer: KillerLink
    second_line: SecondLine
    makers: Makers
    pools: dict[str, Pool]
    tools: Tools
    calls: Calls
    runs: Runs
    approvals: Approvals
    endings: Endings
    journal: Journal
    doors: Doors


class Makers:
    """Makes zygotes and their pools, which share the killer, the table with its slots, the numbers and the breaker."""

    def __init__(
        self,
        config: Config,
        state: StateDirectory,
        groups: ControlGroups,
        table: DeadlineTable,
        killer: KillerLink,
        second_line: SecondLine,
        calls: Calls,
    ) -> None:
        self._config, self._state, self._groups = config, state, groups
        self._table, self._killer, self._second_line, self._calls = table, killer, second_line, calls
        self._flavours = flavours_of(config)
        self._numbers, self._slots = itertools.count(1), Slots(table.slots)
        self._breaker = pool_breaker(config.restart)
        self.zygotes: dict[str, ZygoteLink] = {}

    def zygote(self, flavour: str, name: str, held_by: HeldBy) -> ZygoteLink:
        """One that has a flavour's tools, under a name of its own."""
        self.zygotes[name] = ZygoteLink(self._flavours[flavour], held_by)
        return self.zygotes[name]

    def pool(self, flavour: str, zygote: str, limits: Limits, spares: int, isolation: IsolationLevel) -> Pool:
        """The workers of a flavour, from the zygote of that name."""
        link = self.zygotes[zygote]
        pool = Pool(
            flavour,
            _pool_settings(self._config, limits, _most_workers(self._config), spares),
            link,
            self._killer,
            self._table,
            self._second_line,
            self._groups,
            self._state.work,
            self._numbers,
            self._slots,
            Respawn(self._config.restart, self._breaker),
            self._calls,
            isolation,
        )
        link.on_reaped.append(pool.reaped)
        link.on_lost.append(pool.zygote_lost)
        self._calls.pools[flavour] = pool
        return pool

    def first_ones(self) -> None:
        """A zygote and a pool for each flavour, at the isolation that the daemon wants."""
        settings = self._config.daemon
        for name in self._flavours:
            self.zygote(name, name, holder_of(settings.isolation))
            self.pool(name, name, self._config.limits, settings.spares, settings.isolation)

    def roots(self) -> set[int]:
        """The processes whose descendants are tools."""
        return {link.pid for link in self.zygotes.values() if link.pid}


def assemble(config: Config, socket_path: str, state: StateDirectory, groups: ControlGroups, store: Store) -> Parts:
    """Everything but the loop. ``state``, ``groups`` and ``store`` are open."""
    settings, tools = config.daemon, Tools()
    table = DeadlineTable(_most_workers(config) * len(flavours_of(config)))
    host = Host("group", "none", config.limits, wanted=settings.isolation)  # until more is proven
    journal, killer = Journal(store), KillerLink(table)
    shelf = Shelf(settings.output_quota_bytes, settings.output_ttl_ms)
    endings = Endings(OutputStore(state.outputs), shelf, settings.result_ttl_ms, journal)
    admission, records = Admission(settings.in_flight, settings.queue), LifeRecords(journal, store.life)
    # Never the name of a call of an earlier life, and hardly that of another daemon's.
    boot = f"{secrets.token_hex(2)}{store.life:03x}"
    steering = _steering(config, boot, tools, journal)
    judgement, approvals = steering.judgement, steering.approvals
    given = Given(
        boot, host, tools, endings, admission, killer, journal, records, config.quarantine, judgement, approvals
    )
    calls = Calls(given)
    _tie(steering, calls)
    second_line = SecondLine(calls.workers, killer, settings.confirm_budget_ms * NS_PER_MS, calls.unconfirmed_death)
    killer.on_change = [second_line.look_now, calls.killer_changed]
    makers = Makers(config, state, groups, table, killer, second_line, calls)
    makers.first_ones()
    return Parts(
        host=host,
        state=state,
        groups=groups,
        table=table,
        killer=killer,
        second_line=second_line,
        makers=makers,
        pools=calls.pools,
        tools=tools,
        calls=calls,
        runs=steering.runs,
        approvals=approvals,
        endings=endings,
        journal=journal,
        doors=_doors(config, socket_path, given, calls, steering, groups, makers),
    )


def _steering(config: Config, boot: str, tools: Tools, journal: Journal) -> Steering:
    runs = Runs(
        boot,
        journal,
        Accounts(config.budgets),
        lambda name: Detectors(config.detectors[name]),
        pauses=config.approval.clock == "pause",
    )
    rounds = Rounds(runs)
    approvals = Approvals(boot, config.approval, Policy(config.policy), tools, journal)
    runs.tools = tools.names
    return Steering(runs, rounds, Judgement(runs, rounds), approvals)


def _tie(steering: Steering, calls: Calls) -> None:
    """What runs and approvals want of calls, which are made with them."""
    runs, judgement, approvals = steering.runs, steering.judgement, steering.approvals
    approvals.calls = calls
    approvals.runs = RunApprovals(runs, judgement, approvals)
    runs.end_call, runs.open_effects = calls.end, calls.effects.open_of_run
    runs.check = Finishing(runs, calls.start_own, approvals.confirm).check
    doubts = Doubts(runs, calls.effects)
    judgement.doubts, calls.reconciler.leave_to_ask = doubts.before, doubts.leave_to_ask


def _doors(
    config: Config,
    socket_path: str,
    given: Given,
    calls: Calls,
    steering: Steering,
    groups: ControlGroups,
    makers: Makers,
) -> Doors:
    tools, journal = given.tools, given.journal
    frame_limit = config.daemon.frame_limit
    health = Health(calls, product_version(), given.host, groups.why_not, frame_limit, given.killer, journal)
    readers = EventReaders(journal)
    metrics = MetricsDesk(journal, Metrics(tools.is_served, config.alerts))
    run_desk = RunDesk(steering.runs, steering.rounds)
    hosting = Hosting(steering.runs, tools, _choose_model, config.agent, config.policy)
    effective = _effective(config, socket_path)
    desk = Desk(calls, tools, health, readers, run_desk, steering.approvals, metrics, effective)
    run_desk.hosting, hosting.desk = hosting, desk
    door = UnixDoor(desk, _door_limits(config), makers.roots, Refusals(journal.note))
    return Doors(readers, metrics, door, hosting)


def _choose_model(name: str | None) -> Gateway:
    """The gateway of that name. Raises RunRefusal: there is none."""
    from supervisor.models.choosing import GatewayError, gateway  # loaded when a model is wanted

    try:
        return gateway(name, os.environ)
    except GatewayError as error:
        text = f"where the daemon runs: {error.text}"  # its files and its variables, not those of whoever asked
        raise RunRefusal("no_model", text) from error


def _most_workers(config: Config) -> int:
    """Of one flavour, alive at once."""
    return config.daemon.in_flight + config.daemon.spares + 1


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
