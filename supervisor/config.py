"""The configuration: a TOML file over the defaults. Owns the settings' names, ranges and defaults (``[daemon]``,
``[limits]``, and by its machines ``[quarantine]`` and ``[restart]``); the tables of tools are `config_tools`', those of
profiles, tenants and prices `config_budgets`', approval and policy `config_policy`'s, detectors `config_detectors`',
the way a value is written `config_tables`'.

No file: the defaults, and the built-in tools. Nothing is ever looked for in the working directory. Relative paths in a
file start from its directory. Unknown keys are refused with their path.
"""

from __future__ import annotations

import os
import tomllib
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from protocol import FRAME_HARD_LIMIT, FRAME_LIMIT, Limits
from protocol._contracts import ContainmentLevel, IsolationLevel
from protocol._deadlines import CEILING_MS
from protocol._places import default_socket, default_state_dir
from supervisor.config_agent import AgentSettings, read_agent
from supervisor.config_budgets import read_budgets
from supervisor.config_detectors import detector_values, own_names, read_detectors
from supervisor.config_policy import ApprovalSettings, read_approval, read_policy
from supervisor.config_tables import ConfigError, read_fields, shown
from supervisor.config_tools import ToolTable, read_limits, read_tool
from supervisor.core.detector_sets import SETS, Settings
from supervisor.core.policy import Rule
from supervisor.core.profiles import Budgets
from supervisor.core.quarantine import QuarantineSettings, refuse_disorder
from supervisor.core.respawn import RespawnSettings, refuse_contradictions
from supervisor.observe.alerts import AlertSettings

__all__ = ["Config", "ConfigError", "DaemonSettings", "ToolTable", "load"]

DEFAULT = "default"
_TABLES = tuple(
    "daemon limits tool quarantine restart profile tenant price detectors approval policy alerts agent".split()
)
_DAY_MS = 86_400_000

Budget = Annotated[int, msgspec.Meta(ge=1, le=CEILING_MS)]
Size = Annotated[int, msgspec.Meta(ge=4_096, le=FRAME_HARD_LIMIT)]


class DaemonSettings(msgspec.Struct, frozen=True):
    """``[daemon]``. Times in milliseconds, sizes in bytes."""

    socket: str | None = None
    """None: where clients look by themselves (``DEADLINED_SOCKET``, else the default place)."""
    state_dir: str = msgspec.field(default_factory=default_state_dir)
    spares: Annotated[int, msgspec.Meta(ge=0, le=256)] = 2
    in_flight: Annotated[int, msgspec.Meta(ge=1, le=4_096)] = 64
    queue: Annotated[int, msgspec.Meta(ge=0, le=65_536)] = 256
    frame_limit: Size = FRAME_LIMIT
    clients: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 256
    hello_timeout_ms: Budget = 5_000
    frame_timeout_ms: Budget = 10_000
    confirm_budget_ms: Budget = 1_000
    shutdown_drain_ms: Annotated[int, msgspec.Meta(ge=0, le=CEILING_MS)] = 5_000
    idle_worker_ms: Budget = 60_000
    result_ttl_ms: Annotated[int, msgspec.Meta(ge=1, le=7 * _DAY_MS)] = 3_600_000
    output_ttl_ms: Annotated[int, msgspec.Meta(ge=1, le=365 * _DAY_MS)] = 7 * _DAY_MS
    output_quota_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 50)] = 1 << 30
    allow_gids: tuple[Annotated[int, msgspec.Meta(ge=0, le=2**32 - 2)], ...] = ()
    isolation: IsolationLevel = "contain"
    min_containment: ContainmentLevel | None = None
    min_isolation: IsolationLevel = "none"


Machine = TypeVar("Machine", QuarantineSettings, RespawnSettings)
_DAEMON_KINDS = typing.get_type_hints(DaemonSettings, include_extras=True)
_ALERT_KINDS = typing.get_type_hints(AlertSettings, include_extras=True)


class Config(msgspec.Struct, frozen=True):
    """What holds. ``file``: where it was read from, None without one. ``given``: the keys the file gave, by path."""

    daemon: DaemonSettings = msgspec.field(default_factory=DaemonSettings)
    limits: Limits = msgspec.field(default_factory=Limits)
    tool: dict[str, ToolTable] = {}
    quarantine: QuarantineSettings = msgspec.field(default_factory=QuarantineSettings)
    restart: RespawnSettings = msgspec.field(default_factory=RespawnSettings)
    budgets: Budgets = msgspec.field(default_factory=lambda: read_budgets({}))
    approval: ApprovalSettings = msgspec.field(default_factory=ApprovalSettings)
    policy: tuple[Rule, ...] = ()
    alerts: AlertSettings = msgspec.field(default_factory=AlertSettings)
    agent: AgentSettings = msgspec.field(default_factory=AgentSettings)
    detectors: dict[str, Settings] = msgspec.field(default_factory=lambda: dict(SETS))
    file: str | None = None
    given: frozenset[str] = frozenset()

    def effective(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Every value by table, and where each came from by its path: the file, or ``default``."""
        daemon = {**msgspec.to_builtins(self.daemon), "socket": self.daemon.socket or default_socket()}
        values = {
            "daemon": daemon,
            "limits": msgspec.to_builtins(self.limits),
            "tool": {name: table.values() for name, table in self.tool.items()},
            "quarantine": msgspec.to_builtins(self.quarantine),
            "restart": msgspec.to_builtins(self.restart),
            **self.budgets.values(),
            "approval": msgspec.to_builtins(self.approval),
            "policy": [msgspec.to_builtins(rule) for rule in self.policy],
            "alerts": msgspec.to_builtins(self.alerts),
            "agent": msgspec.to_builtins(self.agent),
            "detectors": {name: detector_values(settings) for name, settings in self.detectors.items()},
        }
        return values, {key: self._source(key) for key in _paths(values)}

    def _source(self, key: str) -> str:
        """What a table does not give itself has the source of what it inherits from."""
        if key in self.given and self.file is not None:
            return self.file
        inherited = self._inherited(key)
        return DEFAULT if inherited is None else self._source(inherited)

    def _inherited(self, key: str) -> str | None:
        """The limits of a tool are those of ``[limits]``, all of a profile is its base's."""
        kind, _, rest = key.partition(".")
        if kind == "tool":
            return "limits." + key.rpartition(".")[2] if ".limits." in key else None
        name, _, field = rest.partition(".")
        base = self.budgets.profiles[name].base if kind == "profile" else None
        return base and f"profile.{base}.{field}"


def load(path: str | None) -> Config:
    """The configuration in a file; None: the defaults. Raises ConfigError: the file, the key, what is allowed."""
    if path is None:
        return Config()
    file = os.path.abspath(path)
    try:
        return _config(_document(file), file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _document(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"is not TOML: {error}") from error


def _config(document: dict[str, Any], file: str) -> Config:
    for name in document:
        if name not in _TABLES:
            raise ConfigError(f"{name} is no setting; allowed: {', '.join(f'[{table}]' for table in _TABLES)}")
    document = {**document, "detectors": own_names(document.get("detectors", {}))}
    detectors = read_detectors(document["detectors"])
    directory = os.path.dirname(file)
    fields = read_fields(document.get("daemon", {}), _DAEMON_KINDS, "daemon")
    limits = read_limits(document.get("limits", {}), "limits", Limits())
    return Config(
        DaemonSettings(**{name: _place(name, value, directory) for name, value in fields.items()}),
        limits,
        _tools(document.get("tool", {}), limits, directory),
        _machine(document, "quarantine", QuarantineSettings, refuse_disorder),
        _machine(document, "restart", RespawnSettings, refuse_contradictions),
        read_budgets(document, detectors),
        read_approval(document.get("approval", {})),
        read_policy(document.get("policy", [])),
        AlertSettings(**read_fields(document.get("alerts", {}), _ALERT_KINDS, "alerts")),
        read_agent(document.get("agent", {})),
        detectors,
        file,
        frozenset(_paths(document)),
    )


def _tools(tables: object, limits: Limits, directory: str) -> dict[str, ToolTable]:
    if not isinstance(tables, dict):
        raise ConfigError(f"tool = {shown(tables)} is not allowed; allowed: tables [tool.NAME]")
    return {name: read_tool(name, table, limits, directory) for name, table in tables.items()}


def _machine(document: dict[str, Any], place: str, kind: type[Machine], refuse: Callable[[Machine], None]) -> Machine:
    """The settings of one of the machines; what cannot be meant, and what could never happen, is refused."""
    settings = kind(**read_fields(document.get(place, {}), typing.get_type_hints(kind), place))
    try:
        refuse(settings)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error
    return settings


def _place(name: str, value: Any, directory: str) -> Any:
    if name not in ("socket", "state_dir") or value is None:
        return value
    if not value or "\0" in value:
        raise ConfigError(f"daemon.{name} = {shown(value)} is not allowed; allowed: a path")
    return os.path.join(directory, os.path.expanduser(value))


def _paths(values: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted path of every value that is no table."""
    paths: list[str] = []
    for key, value in values.items():
        paths += _paths(value, f"{prefix}{key}.") if isinstance(value, dict) and value else [prefix + key]
    return paths
