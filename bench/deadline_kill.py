"""A deadline passes over a call that will not end by itself: how late the signal is, when everything is gone, when the
client knows. Beside a blocking parent that kills the same behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench import _kills
from bench._daemon import open_daemon
from bench._floors import HAS_NAMESPACES, KillFloor, open_kill_floor
from bench._oracle import Oracle, open_oracle
from bench._plan import Plan
from bench._report import Count, Line, Row, Section, Target
from bench._wire import BareClient

_MIB = 200


@dataclass(slots=True)
class Kind:
    """One way not to end, and what came of it, round by round."""

    name: str
    says: str
    deadline_ms: int = 150
    processes: int = 1
    arguments: dict[str, object] = field(default_factory=dict)
    kills: list[list[_kills.Kill]] = field(default_factory=list)
    floor: list[list[tuple[int, int, int]]] = field(default_factory=list)
    missed: int = 0

    @property
    def has_floor(self) -> bool:
        """A family outlives one signal where there are no namespaces."""
        return HAS_NAMESPACES or self.name != "family"


def run(plan: Plan) -> Section:
    """See the module."""
    ordinary = [
        Kind("sleep", "sleeping"),
        Kind("c_loop", "C loop that holds the GIL"),
        Kind("deaf", "every signal ignored"),
        Kind("family", "child, setsid child, daemon", processes=4),
    ]
    large = Kind("memory", f"{_MIB} MiB of memory", 1_000, arguments={"mib": _MIB})
    with (
        open_daemon() as daemon,
        open_kill_floor() as floor,
        open_oracle(daemon.directory) as oracle,
        BareClient(daemon.socket) as client,
    ):
        client.call("bench_noop")
        for _ in range(plan.of(5, 2)):
            for kind in plan.shuffled(ordinary):
                _round(kind, plan.of(8, 5), client, oracle, floor)
            _round(large, plan.of(2, 1), client, oracle, floor)
    return _section(ordinary, large)


def _round(kind: Kind, repeats: int, client: BareClient, oracle: Oracle, floor: KillFloor) -> None:
    kind.kills.append([])
    kind.floor.append([])
    for _ in range(repeats):
        try:
            kill = _kills.play(client, oracle, f"bench_{kind.name}", kind.deadline_ms, kind.processes, **kind.arguments)
            kind.kills[-1].append(kill)
        except _kills.MissedError:
            kind.missed += 1
        if kind.has_floor:
            kind.floor[-1].append(floor.kill(kind.name))


def _section(ordinary: list[Kind], large: Kind) -> Section:
    lines: list[Line] = [
        _row(ordinary, "signalled", Target(p50=0.2, p99=1), "deadline → SIGKILL sent", "0.09–0.22 / 0.15–0.36"),
        _row(ordinary, "gone", Target(p50=3, p99=20), "deadline → all gone, tree < 50 MB", "1.0–2.7 / 1.6–17"),
        _row(ordinary, "answered", Target(p50=4, p99=25), "deadline → answer at the client", "1.1–2.9 / 1.9–17"),
    ]
    for kind in ordinary:
        lines += [_row([kind], what) for what in ("signalled", "gone", "answered")]
    lines += [_row([large], what) for what in ("signalled", "gone", "answered")]
    per_mib = [[1e3 * (kill.gone_ms - kill.signalled_ms) / _MIB for kill in one] for one in large.kills]
    floor = [[(gone - signalled) / 1e3 / _MIB for signalled, gone, _ in one] for one in large.floor]
    lines.append(Row(f"signal → gone, per MiB of {_MIB}", "µs", per_mib, floor))
    kills = [kill for kind in (*ordinary, large) for one in kind.kills for kill in one]
    total = sum(kind.processes * len(one) for kind in (*ordinary, large) for one in kind.kills)
    lines += [
        Count(
            "processes alive when the client was told",
            sum(k.survivors for k in kills),
            total,
            0,
            "survivors at the answer",
            "0 of 1 440",
        ),
        Count("processes that the receipts count", sum(kill.counted for kill in kills), total, None),
        Count("processes that never went", sum(kill.never_gone for kill in kills), total),
        Count("receipts that say confirmed", sum(_confirmed(kill) for kill in kills), len(kills), len(kills)),
    ]
    missed = sum(kind.missed for kind in (*ordinary, large))
    notes = ["the floor: a blocking parent with a timer, SIGKILL, and the wait for the pidfd; no daemon, no client"]
    if missed:
        notes.append(f"{missed} calls were not counted: their deadline came before their processes had reported")
    return Section("a deadline passes (ms after it)", lines, notes)


def _confirmed(kill: _kills.Kill) -> bool:
    return kill.result.kill is not None and kill.result.kill.confirmed


_FLOOR_FIGURE = {"signalled": 0, "gone": 1, "answered": 1}
_SAYS = {"signalled": "SIGKILL sent", "gone": "all gone", "answered": "answer at the client"}


def _row(kinds: list[Kind], what: str, target: Target | None = None, claim: str = "", prototype: str = "") -> Row:
    rounds = [[getattr(kill, f"{what}_ms") for kill in one] for kind in kinds for one in kind.kills]
    floor = [[row[_FLOOR_FIGURE[what]] / 1e6 for row in one] for kind in kinds for one in kind.floor]
    who = kinds[0].says if len(kinds) == 1 else "all ordinary trees"
    return Row(f"{who}: {_SAYS[what]}", "ms", rounds, floor, target, claim, prototype)
