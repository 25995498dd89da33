"""The daemon is SIGKILLed while 20 processes that have escaped from their parents run: when nothing of it is left."""

from __future__ import annotations

import json
import signal
import time

from bench._daemon import open_daemon
from bench._oracle import alive, deaths, open_oracle, tree, watched
from bench._plan import Plan
from bench._report import Count, Row, Section, Target
from bench._wire import BareClient

_ESCAPED = 20
_PATIENCE_S = 5.0


def run(plan: Plan) -> Section:
    """See the module."""
    times: list[float] = []
    everybody = left = 0
    for _ in range(plan.of(5, 2)):
        gone_ms, seen, survivors = _shoot()
        times.append(gone_ms)
        everybody += seen
        left += survivors
    return Section(
        f"daemon SIGKILLed, {_ESCAPED} escaped processes running (ms after the signal)",
        [
            Row("nothing left", "ms", [times], (), Target(most=50), "daemon SIGKILLed → nothing left", "4–14"),
            Count("processes left after 5 s", left, everybody),
        ],
        ["counted: the daemon and every descendant of it, killer, zygotes, workers and the escaped"],
    )


def _shoot() -> tuple[float, int, int]:
    with open_daemon() as daemon, open_oracle(daemon.directory) as oracle, BareClient(daemon.socket) as client:
        client.submit("bench_escape", json.dumps({"report": oracle.path, "count": _ESCAPED}), deadline_ms=60_000)
        with watched(oracle.collect(_ESCAPED + 1, 10.0)) as reported, watched(tree(daemon.pid)) as everybody:
            found = {witness.pid for witness in everybody}
            if len(reported) != _ESCAPED + 1 or not {witness.pid for witness in reported} <= found:
                raise RuntimeError(
                    f"{len(reported)} of {_ESCAPED + 1} processes reported, {len(found)} are the daemon's"
                )
            shot_ns = time.monotonic_ns()
            daemon.signal(signal.SIGKILL)
            dead = deaths(everybody, _PATIENCE_S)
            survivors = len(alive(everybody))
        return (max(dead.values()) - shot_ns) / 1e6, len(found), survivors
