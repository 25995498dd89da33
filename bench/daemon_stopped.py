"""The daemon is SIGSTOPped over a deadline: the killer does not need it. A stopped daemon can tell nobody, so what
counts is when the processes were dead; when the signal left is in the receipt that it writes later.
"""

from __future__ import annotations

import json
import signal
import time

from bench._daemon import BenchDaemon, open_daemon
from bench._oracle import Oracle, alive, deaths, open_oracle, watched
from bench._plan import Plan
from bench._report import Count, Row, Section, Target
from bench._wire import BareClient

_DEADLINE_MS = 400
_FAMILY = 4
_OVER_S = 0.1
"""How long after the deadline the daemon stays stopped."""


def run(plan: Plan) -> Section:
    """See the module."""
    rows: list[tuple[float, float]] = []
    survivors = repeats = 0
    with open_daemon() as daemon, open_oracle(daemon.directory) as oracle, BareClient(daemon.socket) as client:
        for _ in range(plan.of(20, 5)):
            signalled_ms, dead_ms, alive_then = _stop_over(daemon, client, oracle)
            rows.append((signalled_ms, dead_ms))
            survivors += alive_then
            repeats += 1
    signalled, dead = zip(*rows, strict=True)
    return Section(
        "daemon SIGSTOPped over the deadline (ms after it)",
        [
            Row(
                "SIGKILL sent",
                "ms",
                [signalled],
                (),
                Target(most=1),
                "daemon SIGSTOPped → kill on time",
                "0.12",
            ),
            Row("last of a family dead, seen from outside", "ms", [dead], (), Target(p50=3, p99=20)),
            Count("processes alive while it was stopped", survivors, repeats * _FAMILY),
        ],
    )


def _stop_over(daemon: BenchDaemon, client: BareClient, oracle: Oracle) -> tuple[float, float, int]:
    client.submit("bench_family", json.dumps({"report": oracle.path}), deadline_ms=_DEADLINE_MS)
    with watched(oracle.collect(_FAMILY, 10.0)) as witnesses:
        deadline_ns = max(witness.deadline_ns for witness in witnesses)
        if len(witnesses) < _FAMILY or time.monotonic_ns() > deadline_ns - 50_000_000:
            raise RuntimeError("this machine is too loaded: the family reported too late")
        daemon.signal(signal.SIGSTOP)
        try:
            dead = deaths(witnesses, (deadline_ns - time.monotonic_ns()) / 1e9 + _OVER_S)
            survivors = len(alive(witnesses))
        finally:
            daemon.signal(signal.SIGCONT)
        while not (answers := client.settled()[1]):
            pass
        kill = answers[0][1].kill
        assert kill is not None, answers[0][1].summary
        return kill.signalled_after_ms, (max(dead.values()) - deadline_ns) / 1e6, survivors
