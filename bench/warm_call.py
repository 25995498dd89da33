"""A warm call that does nothing, with its deadline armed: client → daemon → worker → client, one at a time.

The bare client speaks to the daemon and to the blocking relay, so the ratio is the daemon's and the worker's alone;
`deadlined.Client` is what a program of a user's pays.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench._daemon import open_daemon
from bench._floors import open_relay_floor
from bench._plan import Plan
from bench._report import Row, Section, Target
from bench._wire import BareClient
from deadlined import Client

_TOOL, _DEADLINE_MS = "bench_noop", 10_000
_WARM_UP = 300


def run(plan: Plan) -> Section:
    """See the module."""
    rounds, calls = plan.of(5, 3), plan.of(1_500, 400)
    bare: list[list[float]] = []
    public: list[list[float]] = []
    floor: list[list[float]] = []
    with (
        open_daemon() as daemon,
        open_relay_floor(1) as relay,
        BareClient(daemon.socket) as client,
        Client(daemon.socket) as library,
    ):
        workloads: list[tuple[list[list[float]], Callable[[], object]]] = [
            (floor, lambda: relay.call(_TOOL, deadline_ms=_DEADLINE_MS)),
            (bare, lambda: client.call(_TOOL, deadline_ms=_DEADLINE_MS)),
            (public, lambda: library.call(_TOOL, {}, deadline_ms=_DEADLINE_MS)),
        ]
        for _, call in workloads:
            _time(call, _WARM_UP)
        for _ in range(rounds):
            for samples, call in plan.shuffled(workloads):
                samples.append(_time(call, calls))
        ok = library.call(_TOOL, {}, deadline_ms=_DEADLINE_MS).status == "ok"
    if not ok:
        raise RuntimeError("the call that was measured did not succeed")
    claim = "warm no-op call, client → worker → client, deadline armed"
    return Section(
        "warm no-op call, one at a time",
        [
            Row("bare client", "µs", bare, floor, Target(p50=150, ratio=2.5), claim, "74–143"),
            Row("deadlined.Client", "µs", public, floor, Target(p50=150)),
            Row("floor: blocking client, relay, worker", "µs", floor),
        ],
    )


def _time(call: Callable[[], object], count: int) -> list[float]:
    samples = []
    for _ in range(count):
        began = time.monotonic_ns()
        call()
        samples.append((time.monotonic_ns() - began) / 1e3)
    return samples
